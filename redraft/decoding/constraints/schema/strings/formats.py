"""Formats of strings, such as "date": an inner set that every validator accepts, and an outer set that any may accept.

Strings in the outer set but not in the inner one are never written, because validators disagree about them.
"""

from __future__ import annotations

from functools import lru_cache

from redraft.decoding.constraints.schema.formula import _TRUE, _any_of, _Formula, _not
from redraft.decoding.constraints.schema.strings.patterns import _pattern_formula
from redraft.decoding.constraints.schema.strings.words import _with_universe

_YEAR = r"([0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"
_LEAP = r"([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)"
_DAYS = r"((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))"
_DATE = rf"({_YEAR}-{_DAYS}|{_LEAP}-02-29)"
_ZONE = r"(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
_TIME = rf"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{{1,6}})?{_ZONE}"
_LABEL = r"[A-Za-z0-9](-?[A-Za-z0-9]){0,18}"  # two hyphens may mark an encoded name
_NAME = rf"{_LABEL}(\.{_LABEL}){{0,2}}"
_HOST = r"[A-Za-z0-9]+([.-][A-Za-z0-9]+)*"
_BYTE = r"(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_HEX = "[0-9A-Fa-f]"
_GROUP = rf"{_HEX}{{1,4}}"
_PATH = rf"([A-Za-z0-9._~!$&'()*+,;=:@-]|%{_HEX}{{2}})"
_TAIL = rf"(/{_PATH}*)*(\?({_PATH}|[/?])*)?(#({_PATH}|[/?])*)?"
_URI = rf"([a-z][a-z0-9+.-]*://{_HOST}(:[0-9]{{1,4}})?{_TAIL}|(urn:[a-z][a-z0-9]{{1,8}}|mailto|tag):{_PATH}+)"
_DURATION = (
    r"P([0-9]+W|([0-9]+Y([0-9]+M([0-9]+D)?)?|[0-9]+M([0-9]+D)?|[0-9]+D)(T{t})?|T{t})"
).replace("{t}", r"([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+S)")  # fmt: skip

# name → (strings that every validator accepts, superset of the strings that any validator accepts)
_FORMATS: dict[str, tuple[str, str]] = {
    "date": (_DATE, r"[0-9].*[0-9]"),
    "time": (_TIME, r"[0-9].*[0-9]"),
    "date-time": (f"{_DATE}T{_TIME}", r"[0-9].*[0-9]"),
    "duration": (_DURATION, r"[Pp].*[0-9]"),
    "uuid": (rf"{_HEX}{{8}}-{_HEX}{{4}}-[1-5]{_HEX}{{3}}-[89ABab]{_HEX}{{3}}-{_HEX}{{12}}", rf"({_HEX}.*){{32}}"),
    "ipv4": (rf"({_BYTE}\.){{3}}{_BYTE}", r"[0-9]"),
    "ipv6": (
        rf"(({_GROUP}:){{7}}{_GROUP}|::|::({_GROUP}:){{0,5}}{_GROUP}|({_GROUP}:){{1,6}}:{_GROUP}|({_GROUP}:){{1,7}}:)",
        ":",
    ),
    "email": (rf"[A-Za-z0-9_]+([.+-][A-Za-z0-9_]+)*@({_LABEL}\.){{1,2}}[A-Za-z]{{2,8}}", "@"),
    "hostname": (_NAME, "[^ ]"),
    "uri": (_URI, ":"),
    "uri-reference": (rf"({_URI}|/{_PATH}+{_TAIL}|[A-Za-z0-9._~-]+{_TAIL}|#({_PATH}|[/?])*)", ""),
    "json-pointer": (r"(/([A-Za-z0-9._ -]|~[01])*)*", "^(/|$)"),
    "relative-json-pointer": (r"(0|[1-9][0-9]*)(#|(/([A-Za-z0-9._ -]|~[01])*)*)", "^[0-9]"),
    "uri-template": (rf"{_URI}", ""),
    "regex": (r"[A-Za-z0-9 ]*", ""),
}
_FORMATS |= {
    "idn-email": _FORMATS["email"],
    "idn-hostname": _FORMATS["hostname"],
    "iri": _FORMATS["uri"],
    "iri-reference": _FORMATS["uri-reference"],
    "ip-address": _FORMATS["ipv4"],  # names from draft 3, which validators of draft 4 still know
    "host-name": _FORMATS["hostname"],
    "color": (r"#[0-9A-Fa-f]{6}", ""),
}


@lru_cache(64)
def _format_formula(name: str) -> _Formula:
    """Return the formula that a string has a format; an unknown format allows everything, as the specification says."""
    if name not in _FORMATS:
        return _TRUE
    inner, outer = (_pattern_formula(source) for source in (rf"^({_FORMATS[name][0]})$", _FORMATS[name][1]))
    certain = _any_of([inner, _not(outer)])
    (atom,) = inner.atoms
    return _with_universe(atom.words, certain).all
