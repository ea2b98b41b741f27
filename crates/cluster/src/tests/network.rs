//! A network that delays, loses, doubles and reorders, and links that are cut.

use super::random::Random;

/// Microseconds.
pub type Time = u64;

pub const MILLISECOND: Time = 1000;
pub const SECOND: Time = 1000 * MILLISECOND;

pub struct Network {
    /// `cut[from][to]`.
    cut: Vec<Vec<bool>>,
    /// One message in this number is lost; 0 for none.
    loss: u64,
    /// One message in this number takes long.
    spikes: u64,
    delay_max: Time,
}

impl Network {
    pub fn new(nodes: usize, random: &mut Random) -> Network {
        Network {
            cut: vec![vec![false; nodes]; nodes],
            loss: [0, 200, 50, 10][random.below(4) as usize],
            spikes: [0, 500, 50][random.below(3) as usize],
            delay_max: random.between(1, 20) * MILLISECOND,
        }
    }

    /// When copies of a message sent now arrive, as delays.
    pub fn send(&self, from: usize, to: usize, random: &mut Random) -> Vec<Time> {
        if self.cut[from][to] || (self.loss > 0 && random.one_in(self.loss)) {
            return Vec::new();
        }
        let copies = if random.one_in(100) { 2 } else { 1 };
        (0..copies).map(|_| self.delay(random)).collect()
    }

    fn delay(&self, random: &mut Random) -> Time {
        let spike = self.spikes > 0 && random.one_in(self.spikes);
        random.between(50, if spike { SECOND } else { self.delay_max })
    }

    pub fn is_cut(&self, from: usize, to: usize) -> bool {
        self.cut[from][to]
    }

    pub fn heal(&mut self) {
        self.cut.iter_mut().flatten().for_each(|cut| *cut = false);
    }

    /// Ends loss and spikes too.
    pub fn calm(&mut self) {
        self.heal();
        (self.loss, self.spikes) = (0, 0);
    }

    /// Cuts links: one node off, random halves, one direction of one link, or every node from its
    /// right neighbour.
    pub fn cut(&mut self, random: &mut Random) {
        let nodes = self.cut.len();
        let one = random.below(nodes as u64) as usize;
        match random.below(5) {
            0 => (0..nodes).for_each(|other| (self.cut[one][other], self.cut[other][one]) = (true, true)),
            1 => {
                let side: Vec<bool> = (0..nodes).map(|_| random.one_in(2)).collect();
                for from in 0..nodes {
                    (0..nodes).for_each(|to| self.cut[from][to] |= side[from] != side[to]);
                }
            }
            2 => self.cut[one][(one + 1 + random.below(nodes as u64 - 1) as usize) % nodes] = true,
            3 => (0..nodes).for_each(|other| self.cut[one][other] = true),
            _ => (0..nodes).for_each(|node| self.cut[node][(node + 1) % nodes] = true),
        }
    }
}
