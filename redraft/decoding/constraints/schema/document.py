"""A schema document: its draft, its references, and its subschemas as nodes; equal subschemas share a node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any, NamedTuple
from urllib.parse import unquote, urldefrag, urljoin

from redraft.decoding.constraints.schema.formula import _Formula

_Schema = dict[str, Any] | bool

# Keywords by where they contain subschemas.
_MAPS = ("properties", "patternProperties", "dependentSchemas", "dependencies", "definitions", "$defs")
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_SINGLE = ("items", "additionalItems", "contains", "additionalProperties", "propertyNames", "not", "if", "then",
           "else", "unevaluatedItems", "unevaluatedProperties", "contentSchema")  # fmt: skip
_IN_PLACE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies")
_NO_SCHEMAS = ("definitions", "$defs", "contentSchema")  # these do not constrain the value

_ASSERTIONS = (
    "$ref", "type", "enum", "const", "allOf", "anyOf", "oneOf", "not", "if", "minimum", "maximum", "exclusiveMinimum",
    "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "pattern", "format", "prefixItems", "items", "minItems",
    "maxItems", "contains", "uniqueItems", "unevaluatedItems", "properties", "patternProperties",
    "additionalProperties", "propertyNames", "required", "minProperties", "maxProperties", "dependentRequired",
    "dependentSchemas", "dependencies", "unevaluatedProperties",
)  # fmt: skip
_ANNOTATIONS = ("title", "description", "default", "examples", "$comment")
_REFUSED = {
    "$dynamicRef": "is resolved while a value is checked",
    "$recursiveRef": "is resolved while a value is checked",
    "extends": "belongs to draft 3",
    "disallow": "belongs to draft 3",
    "divisibleBy": "belongs to draft 3",
}

_KIND_OF = {
    type(None): "null",
    bool: "boolean",
    int: "number",
    Decimal: "number",
    str: "string",
    list: "array",
    dict: "object",
}
_SCHEMA_KINDS = ("object", "boolean")

# First and last draft that knows a keyword; keywords that are not listed are in all drafts.
_KNOWN = {
    **dict.fromkeys(("const", "contains", "propertyNames"), (6, 2020)),
    **dict.fromkeys(("if", "then", "else"), (7, 2020)),
    **dict.fromkeys(("dependentRequired", "dependentSchemas", "minContains", "maxContains"), (2019, 2020)),
    **dict.fromkeys(("unevaluatedItems", "unevaluatedProperties"), (2019, 2020)),
    "prefixItems": (2020, 2020),
    "additionalItems": (4, 2019),
    "dependencies": (4, 7),
}


def _kind_of(value: Any) -> str:
    """Return the JSON type of a value, as the keyword `type` names it; whole numbers too are numbers."""
    return _KIND_OF[type(value)]


class _SchemaRefused(ValueError):
    """Raised for a schema with a keyword that cannot be obeyed exactly."""

    def __init__(self, keyword: str, pointer: str, why: str) -> None:
        super().__init__(
            f"the JSON schema cannot be obeyed exactly: {keyword!r} at {pointer or '#'} {why}; leave it out"
        )


@dataclass(frozen=True, eq=False)
class _Node:
    """A schema and its position in a document."""

    document: _Document
    schema: _Schema
    pointer: str
    base: str

    def __repr__(self) -> str:
        return self.pointer

    @property
    def truth(self) -> bool | None:
        """Whether every value obeys the schema, or none, if it is `true` or `false`; otherwise None."""
        return self.schema if self.schema is True or self.schema is False else None

    @property
    def keywords(self) -> dict[str, Any]:
        return {} if self.schema is True or self.schema is False else self.schema

    def get(self, keyword: str, kind: str = "", why: str = "") -> Any:
        """Return the value of a keyword; None if it is absent or not part of the draft.

        kind: the JSON type that the value must have; otherwise the schema is refused, and `why` says so.
        """
        if not self.document.knows(keyword) or (self.bare_reference and keyword != "$ref"):
            return None
        value = self.keywords.get(keyword)
        if kind and value is not None and _kind_of(value) != kind:
            raise self.refused(keyword, why)
        return value

    def has(self, keyword: str) -> bool:
        """Whether a keyword is present and part of the draft; the value of `const` may be null."""
        return keyword in self.keywords and (
            self.get(keyword) is not None
            or (keyword == "const" and self.document.knows(keyword) and not self.bare_reference)
        )

    @property
    def asserts(self) -> bool:
        """Whether the schema constrains the value at all."""
        return any(map(self.has, _ASSERTIONS))

    @cached_property
    def meanings(self) -> dict[str, _Formula | None]:
        """Cache of the schema's formula for each kind of value, filled on demand."""
        return {}

    @property
    def bare_reference(self) -> bool:
        """Whether keywords next to `$ref` are ignored, as in drafts up to 7."""
        return self.document.strict and self.document.draft <= 7 and _kind_of(self.keywords.get("$ref")) == "string"

    def child(self, schema: Any, *steps: str | int) -> _Node:
        """Return the node of a subschema; `steps` are the keyword and index that lead to it."""
        pointer = _pointer(self.pointer, steps)
        if _kind_of(schema) not in _SCHEMA_KINDS:
            raise _SchemaRefused(str(steps[0]), self.pointer, f"has {schema!r:.40} where a schema belongs")
        return self.document.node(schema, pointer, self.base)

    def at(self, keyword: str) -> _Node | None:
        """Return the subschema of a keyword that holds one; None if it is absent."""
        schema = self.get(keyword)
        return None if schema is None else self.child(schema, keyword)

    def list_of(self, keyword: str) -> list[_Node]:
        """Return the subschemas of a keyword that holds a list of them."""
        schemas = self.get(keyword, "array", "must be a list of schemas") or ()
        return [self.child(schema, keyword, i) for i, schema in enumerate(schemas)]

    def map_of(self, keyword: str) -> dict[str, _Node]:
        """Return the subschemas of a keyword that maps names to them."""
        schemas = self.get(keyword, "object", "must be an object with schemas") or {}
        return {name: self.child(schema, keyword, name) for name, schema in schemas.items()}

    def refused(self, keyword: str, why: str) -> _SchemaRefused:
        return _SchemaRefused(keyword, self.pointer, why)

    @cached_property
    def target(self) -> _Node | None:
        """The node that `$ref` refers to; None without a reference."""
        reference = self.get("$ref")
        return self.document.resolve(self, reference) if _kind_of(reference) == "string" else None

    @cached_property
    def plain(self) -> _Node:
        """This node, or the node it refers to if it has nothing but a reference."""
        node, seen = self, {self}
        while node.target is not None and not node._has_siblings:
            node = node.target
            if node in seen:
                raise self.refused("$ref", "refers to itself")
            seen.add(node)
        return node

    @property
    def _has_siblings(self) -> bool:
        if self.bare_reference:
            return False
        return any(key not in (*_ANNOTATIONS, *_NO_SCHEMAS, "$ref", "$schema", "$id", "id") for key in self.keywords)

    # --- the graph ---

    @cached_property
    def beside(self) -> list[_Node]:
        """Schemas that apply to the same value directly: the target of `$ref`, and `allOf`, `if` and the like."""
        nodes = [self.target] if self.target is not None else []
        for keyword in _IN_PLACE:
            nodes += self._below(keyword)
        return [node.plain for node in nodes]

    def _below(self, keyword: str) -> list[_Node]:
        value = self.get(keyword)
        return [
            self.child(schema, *steps)
            for steps, schema in _subschemas(keyword, value)
            if _kind_of(schema) in _SCHEMA_KINDS
        ]

    @cached_property
    def cluster(self) -> list[_Node]:
        """All schemas that apply to the same value, this one first."""
        cluster = {self: None}
        queue = [self]
        for node in queue:  # grows during the loop
            fresh = [other for other in node.beside if other not in cluster]
            cluster.update(dict.fromkeys(fresh))
            queue += [other for other in dict.fromkeys(fresh)]
        return list(cluster)

    @property
    def loop(self) -> int | None:
        """Index of the group of mutually recursive schemas it belongs to; None if it is not recursive."""
        return self.document.loops.get(self)


def _subschemas(keyword: str, value: Any) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Yield the subschemas of a keyword, each with the steps that lead to it."""
    kind = _kind_of(value)
    if keyword in _MAPS and kind == "object":
        yield from (((keyword, name), schema) for name, schema in value.items())
    elif keyword in _LISTS and kind == "array":
        yield from (((keyword, i), schema) for i, schema in enumerate(value))
    elif keyword in _SINGLE and value is not None:
        yield (keyword,), value


def _pointer(start: str, steps: Iterable[str | int]) -> str:
    """Return the JSON pointer to what `steps` lead to."""
    return "/".join([start, *(str(step).replace("~", "~0").replace("/", "~1") for step in steps)])


class _SchemaPlace(NamedTuple):
    """A schema object inside a document, and the keys that lead to it."""

    schema: dict[str, Any]
    steps: tuple[str | int, ...]

    @property
    def pointer(self) -> str:
        return _pointer("#", self.steps)


def _schema_places(root: Any) -> Iterator[_SchemaPlace]:
    """Yield all schema objects of a document, the root first."""
    queue: list[tuple[Any, tuple[str | int, ...]]] = [(root, ())]
    for schema, steps in queue:  # grows during the loop
        if _kind_of(schema) == "object":
            yield _SchemaPlace(schema, steps)
            for keyword, value in schema.items():
                queue += [(below, (*steps, *more)) for more, below in _subschemas(keyword, value)]


class _Document:
    """A schema document, which resolves references.

    strict: ignore keywords of other drafts and, up to draft 7, keywords next to `$ref`; otherwise obey all of them.
    """

    def __init__(self, root: _Schema, draft: int, strict: bool) -> None:
        self.draft, self.strict = draft, strict
        self._nodes: dict[tuple[str, object], _Node] = {}
        self._essences: dict[object, int] = {}
        self._known: dict[int, tuple[Any, int]] = {}  # by id(); holds the value, so that its id is not reused
        self._addressed: dict[str, tuple[Any, str, str]] = {}  # by address: schema, pointer, base
        self._index(root, "#", "")
        self._addressed.setdefault("", (root, "#", ""))
        self.root = self.node(root, "#", self._base_of(root, ""))

    def knows(self, keyword: str) -> bool:
        first, last = _KNOWN.get(keyword, (0, 9999))
        return not self.strict or first <= self.draft <= last

    def node(self, schema: _Schema, pointer: str, base: str) -> _Node:
        """Return the node of a schema; schemas that differ only in annotations share one."""
        base = self._base_of(schema, base)
        key = base, self._essence(schema)
        if key not in self._nodes:
            node = _Node(self, schema, pointer, base)
            for keyword in _REFUSED.keys() & node.keywords.keys():
                raise node.refused(keyword, _REFUSED[keyword])
            self._nodes[key] = node
        return self._nodes[key]

    def _essence(self, value: Any) -> int:
        """Return an integer that equal values share; string annotations are ignored."""
        if _kind_of(value) in ("object", "array"):
            if id(value) not in self._known:
                self._known[id(value)] = value, self._number(self._parts(value))
            return self._known[id(value)][1]
        return self._number((type(value).__name__, value))

    def _parts(self, value: Any) -> object:
        if _kind_of(value) == "array":
            return ("list", *(self._essence(part) for part in value))
        kept = ((k, v) for k, v in value.items() if not (k in _ANNOTATIONS and _kind_of(v) == "string"))
        return ("dict", *((k, self._raw(v) if k in ("enum", "const") else self._essence(v)) for k, v in kept))

    def _raw(self, value: Any) -> int:
        return self._number(("raw", repr(value)))

    def _number(self, parts: object) -> int:
        return self._essences.setdefault(parts, len(self._essences))

    # --- references ---

    def _own_id(self, schema: Any) -> str:
        if _kind_of(schema) != "object":
            return ""
        own_id = schema.get("id" if self.draft == 4 else "$id")
        return own_id if _kind_of(own_id) == "string" else ""

    def _base_of(self, schema: Any, base: str) -> str:
        own = urldefrag(self._own_id(schema)).url
        return urljoin(base, own) if own else base

    def _index(self, schema: Any, pointer: str, base: str) -> None:
        """Record every address ($id, $anchor) that the document defines, with the schema it names."""
        queue = [(schema, pointer, base)]
        while queue:
            schema, pointer, base = queue.pop()
            if _kind_of(schema) != "object":
                continue
            base = self._base_of(schema, base)
            for address in self._addresses(schema, base):
                self._addressed.setdefault(address, (schema, pointer, base))
            for keyword, value in schema.items():
                for steps, below in _subschemas(keyword, value):
                    queue.append((below, "/".join([pointer, *map(str, steps)]), base))

    def _addresses(self, schema: dict[str, Any], base: str) -> Iterator[str]:
        own, fragment = urldefrag(self._own_id(schema))
        if own:
            yield base
        if fragment:
            yield f"{base}#{fragment}"
        for keyword in ("$anchor", "$dynamicAnchor"):
            if _kind_of(schema.get(keyword)) == "string":
                yield f"{base}#{schema[keyword]}"

    def resolve(self, node: _Node, reference: str) -> _Node:
        address = urljoin(node.base, reference) if node.base else reference
        url, fragment = urldefrag(address)
        place = self._addressed.get(url, self._addressed[""] if url == node.base == "" else None)
        if place is None and url == urldefrag(self.root.base).url:
            place = self._addressed[""]
        if fragment and not fragment.startswith("/"):
            place = self._addressed.get(f"{url}#{fragment}")
        if place is None:
            raise node.refused("$ref", f"refers to {reference!r:.60}, which is not in the document")
        schema, pointer, base = place
        base = self._base_of(schema, base)
        for step in fragment.split("/")[1:] if fragment.startswith("/") else ():
            name = unquote(step).replace("~1", "/").replace("~0", "~")
            try:
                schema = schema[int(name)] if _kind_of(schema) == "array" else schema[name]
            except (KeyError, ValueError, IndexError, TypeError):
                raise node.refused("$ref", f"refers to {reference!r:.60}, which does not exist") from None
            pointer, base = f"{pointer}/{step}", self._base_of(schema, base)
        if _kind_of(schema) not in _SCHEMA_KINDS:
            raise node.refused("$ref", f"refers to {reference!r:.60}, which is not a schema")
        return self.node(schema, pointer, base)

    # --- schemas that contain themselves ---

    @cached_property
    def loops(self) -> dict[_Node, int]:
        """Index of the group of mutually recursive schemas, for each recursive node (Tarjan, without recursion)."""
        order: dict[_Node, int] = {}
        low: dict[_Node, int] = {}
        stack: list[_Node] = []
        inside: set[_Node] = set()
        groups: dict[_Node, int] = {}
        work: list[tuple[_Node, Iterator[_Node]]] = []

        def enter(node: _Node) -> None:
            order[node] = low[node] = len(order)
            stack.append(node)
            inside.add(node)
            work.append((node, iter(_direct_successors(node))))

        enter(self.root.plain)
        while work:
            node, rest = work[-1]
            after = next(rest, None)
            if after is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == order[node]:
                    group = [stack.pop()]
                    while group[-1] is not node:
                        group.append(stack.pop())
                    inside -= set(group)
                    if len(group) > 1 or node in _direct_successors(node):
                        groups.update(dict.fromkeys(group, order[node]))
            elif after not in order:
                enter(after)
            elif after in inside:
                low[node] = min(low[node], order[after])
        return groups


def _direct_successors(node: _Node) -> list[_Node]:
    """Return the nodes one step away; unsupported ones are skipped, because they may never be needed."""
    successors: dict[_Node, None] = {}
    for keyword in (*_MAPS, *_LISTS, *_SINGLE):
        for steps, schema in () if keyword in _NO_SCHEMAS else _subschemas(keyword, node.get(keyword)):
            with suppress(_SchemaRefused):
                successors[node.child(schema, *steps).plain] = None
    with suppress(_SchemaRefused):
        if node.target is not None:
            successors[node.target.plain] = None
    return list(successors)
