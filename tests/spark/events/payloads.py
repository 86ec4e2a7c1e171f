"""Payloads that readers of JSON disagree about, one by one and by chance."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

from lakechime_dagster.silver.event import MAX_DEPTH, MAX_NAME, MAX_NUMBER, MAX_PATHS, MAX_TYPE

_ODD = Path(__file__).with_name("odd")
_EVENT = '{"type":"t","a":%s}'
# the least number that is nearer to infinity than to the greatest double
_DOUBLE = str(2**1024 - 2**970)
_SPACED = ("\n", '{"type"\n:\n"t"\n,\n"a"\n:\n[\n1\n,\n2\n]\n}\n', '\r\n\t {"type":"t"}\r\n\t ')


def odd() -> list[bytes]:
    """What is at a bound, and what only some readers take."""
    return [one if isinstance(one, bytes) else one.encode(errors="surrogatepass") for one in _odd()]


def _lines(file: str) -> list[str]:
    return (_ODD / file).read_bytes().decode().removesuffix("\n").split("\n")


def _odd() -> Iterator[str | bytes]:
    yield from _lines("events.txt")
    yield from _SPACED
    for value in (*_lines("values.txt"), *_at_bounds()):
        yield from (
            _EVENT % value,
            _EVENT % f"[{value} , {value}]",
            value,
            f'{{"type":{value}}}',
            f'{{"type":"t","p":{value}}}',
        )
    for name in _lines("names.txt"):
        yield f'{{{name}:1,"type":"t","type":{name}}}'
        yield f'{{"type":"t","x":{{{name}:{{{name}:1}}}},{name}:[{{{name}:null}}],"z":{{{name}:1,{name}:"x"}}}}'
        yield f'{{"type":"t","\\u0061":1,{name}:2,"a":3,"":4,"/":5}}'
    for encoded in map(bytes.fromhex, _lines("bytes.txt")):
        yield from (
            encoded,
            b"abcdefg" + encoded + b"hijklmnop",
            b'{"type":"' + encoded + b'"}',
            b'{"' + encoded + b'":1,"type":"t"}',
        )
        yield from (
            b'{"type":"t"}' + encoded,
            encoded + b'{"type":"t"}',
            b'{"type":"t","p":"' + encoded,
            b'{"type":"t", x "' + encoded + b'"',
        )
    yield '{"type":"t","x":[{"\\n":1},{"\n":1}]}'
    yield b'{"type":"t","x":[{"\\ud800":1},{"\xed\xa0\x80":1}]}'
    yield b'{"type":"t\\u0000"}'
    yield from _long_paths()
    yield from _deep()
    yield from _together()


def _at_bounds() -> Iterator[str]:
    for digits in (
        18,
        19,
        20,
        37,
        38,
        39,
        307,
        308,
        309,
        310,
        MAX_NUMBER - 1,
        MAX_NUMBER,
        MAX_NUMBER + 1,
    ):
        for one in ("1" + "0" * (digits - 1), "9" * digits):
            yield from (
                one,
                "-" + one,
                one + ".0",
                one + "e0",
                "0." + one,
                "0." + "0" * (digits - 3) + "1",
                f"0.{'0' * (digits - 8)}1e{digits}",
            )
    for one in (_DOUBLE, str(int(_DOUBLE) - 1), str(int(_DOUBLE) + 1)):
        yield from (
            one,
            f"-{one}.0",
            f"{one}.1",
            f"{one[0]}.{one[1:]}e308",
            f"0.{one}e309",
            f"0.000{one}E+312",
            f"{one}000e-3",
        )
    for length in (MAX_TYPE - 1, MAX_TYPE, MAX_TYPE + 1):
        yield from (
            f'"{one * length}"' for one in ("x", "ä", "😀", " ", r"\u0061", r"\ud83d\ude00")
        )
    for name in (MAX_NAME - 1, MAX_NAME, MAX_NAME + 1):
        yield f'{{"{"n" * name}":1}}'
        yield f'{{"{chr(228) * (name // 2)}{"n" * (name % 2)}":1}}'
        yield '{"' + r"\u00e4" * (name // 2) + "n" * (name % 2) + '":1}'
        yield '{"' + r"\ud800" * (name // 3) + "n" * (name % 3) + '":1}'


def _long_paths() -> Iterator[str]:
    """Events whose paths are of the most bytes together, one more or one less; fields are reported
    twice, and count once.
    """
    below = ",".join(f'"{number:05}":{{}},"{number:05}":1' for number in range(511))
    shared = (MAX_PATHS - len("/type") - 511 * 6) // 512 - 2
    rest = MAX_PATHS - len("/type") - 512 * (shared + 1) - 511 * 6
    for length in (rest - 1, rest, rest + 1):
        yield f'{{"type":"t","{"n" * shared}":{{{below}}},"{"r" * (length - 1)}":1}}'
        yield f'{{"type":"t","{"ä" * (shared // 2)}{"n" * (shared % 2)}":{{{below}}},"e":[1,2],"{"r" * (length - 7)}":1}}'


def _deep() -> Iterator[str]:
    for depth in (MAX_DEPTH - 1, MAX_DEPTH, MAX_DEPTH + 1, 20_000):
        arrays, objects = "[" * (depth - 1), '{"a":' * (depth - 1)
        for inner in ("", "1", "{}", '"\\ud800"', "[]"):
            for after in ("", "x"):
                yield f'{{"type":"t","a":{arrays}{inner}{"]" * (depth - 1)}}}{after}'
        yield f'{{"type":"t","a":{arrays}'
        yield f'{{"type":"t","a":{arrays}{"}" * depth}'
        yield f'{{"type":"t","a":{objects}1{"}" * depth}'
        yield f'{{"type":"t","a":{objects}{{}}{"}" * depth}'
        yield f'{{"type":"t","a":{objects}1{"}" * (depth - 1)}'
        yield f"[{arrays}{']' * depth}"


def _together() -> Iterator[str]:
    """Several reasons in one text: the first of their order is it."""
    name, number, deep = (
        f'"{"n" * (MAX_NAME + 1)}":1',
        f'"n":{"1" * (MAX_NUMBER + 1)}',
        f'"d":{"[" * MAX_DEPTH}{"]" * MAX_DEPTH}',
    )
    for parts in (
        (number, name),
        (name, number),
        (number, deep),
        (deep, name, number),
        (number, '"type":1'),
        (name,),
        (deep,),
        (number,),
    ):
        yield f"{{{','.join(parts)}}}"
        yield f"[{{{','.join(parts)}}}]"
        yield f"{{{','.join(parts)}}}x"
        yield f'{{"type":"t",{",".join(parts)}}}'


class Chance:
    """Payloads by chance: events spelled in any way JSON has, and damaged ones."""

    _NAMES = ("type", "a", "b", "p", "", "/", "~[", "ä", "😀", "\ud800", "\n", "id", "name", "legs")
    _DAMAGE = (
        b'"',
        b"\\",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b" ",
        b"0",
        b"-",
        b".",
        b"e",
        b"\x00",
        b"\x80",
        b"\xc3",
        b"\xed\xa0\x80",
        b"\xef\xbb\xbf",
        b"\\u",
        b"d83d",
        b"null",
    )

    def __init__(self, seed: int, type_field: tuple[str, ...]) -> None:
        self.random = Random(seed)
        self.type_field = type_field

    def payloads(self, count: int) -> list[bytes]:
        events = [self.event().encode() for _ in range(count // 2)]
        return events + [
            self.damaged(self.random.choice(events)) for _ in range(count - len(events))
        ]

    def event(self) -> str:
        return (
            self.space()
            + self.object(0, self.type_field if self.random.random() < 0.9 else ())
            + self.space()
        )

    def damaged(self, payload: bytes) -> bytes:
        """One with some bytes cut out, put in or set to others."""
        found = bytearray(payload)
        for _ in range(self.random.choice((1, 1, 1, 2, 5))):
            at = self.random.randrange(len(found) + 1)
            cut = self.random.choice((0, 0, 1, 1, 2, 8))
            more = self.random.choice(
                (
                    b"",
                    self.random.choice(self._DAMAGE),
                    self.random.randbytes(1),
                    found[at : at + 9],
                )
            )
            found[at : at + cut] = more
        return bytes(found)

    def object(self, depth: int, way: tuple[str, ...] = ()) -> str:
        """An object with fields by chance, one of which leads a way to a text."""
        fields = [
            self.field(self.random.choice(self._NAMES), self.value(depth + 1))
            for _ in range(self.random.choice((0, 1, 2, 3, 5)))
        ]
        if way:
            inner = (
                self.object(depth + 1, way[1:])
                if way[1:]
                else self.spelled(self.random.choice(("t", "other type", "ä😀", "/")))
            )
            fields.insert(self.random.randrange(len(fields) + 1), self.field(way[0], inner))
        return "{" + (",".join(fields) or self.space()) + "}"

    def field(self, name: str, value: str) -> str:
        return (
            f"{self.space()}{self.spelled(name)}{self.space()}:{self.space()}{value}{self.space()}"
        )

    def value(self, depth: int) -> str:
        match self.random.randrange(4 if depth > 4 else 6):
            case 0:
                return self.number()
            case 1:
                return self.random.choice(("true", "false", "null"))
            case 2 | 3:
                return self.spelled(
                    "".join(
                        self.random.choices(
                            'aZ0 "\\/\n\x00\x7fä€😀\ud800\udc00',
                            k=self.random.choice((0, 1, 3, 8, 20)),
                        )
                    )
                )
            case 4:
                return self.object(depth)
            case _:
                return (
                    "["
                    + (
                        ",".join(
                            self.space() + self.value(depth + 1)
                            for _ in range(self.random.randrange(4))
                        )
                        or self.space()
                    )
                    + "]"
                )

    def number(self) -> str:
        digits = self.random.choice((1, 3, 18, 19, 20, 38, 39, 308, 309))
        whole = self.random.choice(
            ("0", str(self.random.randrange(10 ** (digits - 1), 10**digits)))
        )
        fraction = self.random.choice(("", "", ".0", f".{self.random.randrange(10**digits)}"))
        exponent = self.random.choice(
            (
                "",
                "",
                f"{self.random.choice('eE')}{self.random.choice(('', '+', '-'))}{self.random.choice((0, 5, 99, 288, 307, 308, 309, 400))}",
            )
        )
        return self.random.choice(("", "-")) + whole + fraction + exponent

    def space(self) -> str:
        return self.random.choice(("", "", "", "", " ", "\n", "\t\r "))

    def spelled(self, text: str) -> str:
        return '"' + "".join(self.character(one) for one in text) + '"'

    def character(self, one: str) -> str:
        short = {
            '"': r"\"",
            "\\": "\\\\",
            "/": r"\/",
            "\b": r"\b",
            "\f": r"\f",
            "\n": r"\n",
            "\r": r"\r",
            "\t": r"\t",
        }
        units = one.encode("utf-16-be", errors="surrogatepass")
        escapes = "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))
        must = one < " " or one in '"\\' or "\ud800" <= one <= "\udfff"
        ways = [
            escapes,
            escapes.upper().replace("U", "u"),
            *([short[one]] if one in short else []),
            *([] if must else [one] * 6),
        ]
        return self.random.choice(ways)
