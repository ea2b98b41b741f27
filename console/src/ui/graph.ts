// Where the nodes of a graph stand: in layers from left to right, each node behind those that lead to it.

export interface GraphNode {
  id: string;
}

export interface GraphEdge {
  from: string;
  to: string;
}

export interface Place {
  layer: number;
  /** From above, within its layer. */
  row: number;
}

/** Circles end here; so many steps in a row are more than a picture shows anyway. */
const LAYERS_MAX = 8;
const SWEEPS = 4;

/** The place of each node, by its id. The same graph has the same picture. */
export function layered(nodes: GraphNode[], edges: GraphEdge[]): Map<string, Place> {
  const layer = new Map(nodes.map(({ id }) => [id, 0]));
  for (let round = 1; round < LAYERS_MAX; round += 1) {
    for (const { from, to } of edges) {
      const behind = (layer.get(from) ?? 0) + 1;
      if (from !== to && behind > (layer.get(to) ?? 0) && behind < LAYERS_MAX) layer.set(to, behind);
    }
  }
  const layers: string[][] = [];
  for (const { id } of nodes) (layers[layer.get(id) ?? 0] ??= []).push(id);
  const used = layers.filter((ids) => ids !== undefined);
  const row = new Map<string, number>();
  const number = () => used.forEach((ids) => ids.forEach((id, index) => row.set(id, index)));
  number();
  // Each node goes as high as those that it is tied to, from the left and then from the right.
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const isForward = sweep % 2 === 0;
    for (const ids of isForward ? used : [...used].reverse()) {
      const height = new Map(ids.map((id) => [id, middle(id, isForward, edges, row)]));
      ids.sort((one, other) => (height.get(one) ?? 0) - (height.get(other) ?? 0) || one.localeCompare(other));
      ids.forEach((id, index) => row.set(id, index));
    }
  }
  number();
  return new Map(used.flatMap((ids, index) => ids.map((id, at): [string, Place] => [id, { layer: index, row: at }])));
}

function middle(id: string, isForward: boolean, edges: GraphEdge[], row: Map<string, number>): number {
  const tied = edges.filter((edge) => (isForward ? edge.to : edge.from) === id).map((edge) => row.get(isForward ? edge.from : edge.to) ?? 0);
  return tied.length === 0 ? (row.get(id) ?? 0) : tied.reduce((sum, at) => sum + at, 0) / tied.length;
}
