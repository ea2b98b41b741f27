"""Renders the templates of a Helm chart, as far as ours need it: values, quotes, defaults, `if`, `toYaml`, `nindent` and
`sha256sum`. Anything else is an error."""

import hashlib
import os
import re

import yaml


def lookup(path, scope):
    for name in path.strip(".").split("."):
        scope = scope[name]
    return scope


def evaluate(expression, scope):
    value = None
    for part in (part.strip() for part in expression.split("|")):
        word, _, argument = part.partition(" ")
        if word.startswith("."):
            value = lookup(word, scope)
        elif word == "toYaml":
            value = yaml.safe_dump(lookup(argument, scope), default_flow_style=False).strip()
        elif word == "nindent":
            value = "".join("\n" + " " * int(argument) + line for line in value.rstrip("\n").split("\n"))
        elif word == "default":
            value = value or lookup(argument, scope)
        elif word == "sha256sum":
            value = hashlib.sha256(value.encode()).hexdigest()
        elif word == "quote":
            value = f'"{value}"'
        else:
            raise ValueError(f"not understood: {expression}")
    return str(value)


def render_text(text, scope):
    out, keeps = [], [True]
    for part in re.split(r"(\{\{.*?\}\})", re.sub(r"[ \t]*\n?[ \t]*\{\{-", "{{", text)):
        if not part.startswith("{{"):
            out += [part] if all(keeps) else []
            continue
        expression = part[2:-2].strip()
        if expression.startswith("if "):
            keeps.append(bool(lookup(expression[3:], scope)))
        elif expression == "end":
            keeps.pop()
        elif all(keeps):
            out.append(evaluate(expression, scope))
    assert keeps == [True], "an `if` without an `end`"
    return "".join(out)


def render(folder, release, **changed):
    """The objects of the chart, by their kind."""
    with open(os.path.join(folder, "Chart.yaml"), encoding="utf-8") as file:
        chart = yaml.safe_load(file)
    with open(os.path.join(folder, "values.yaml"), encoding="utf-8") as file:
        values = {**yaml.safe_load(file), **changed}
    named = {name[0].upper() + name[1:]: value for name, value in chart.items()}
    scope = {"Values": values, "Release": {"Name": release}, "Chart": named}
    objects = {}
    for name in sorted(os.listdir(os.path.join(folder, "templates"))):
        with open(os.path.join(folder, "templates", name), encoding="utf-8") as file:
            made = yaml.safe_load(render_text(file.read(), scope))
        if made:
            objects[made["kind"]] = made
    return objects
