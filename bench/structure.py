"""Measures the code's structure: `python -m bench.structure` prints a table of its rooms."""

import ast
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

PACKAGE = Path("kafka_s3_platform")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class Code:
    """The modules of a room, parsed."""

    def __init__(self, files: Sequence[Path]) -> None:
        texts = [file.read_text() for file in files]
        self.file_lines = [len(text.splitlines()) for text in texts]
        self.lines = [line.strip() for text in texts for line in text.splitlines() if line.strip()]
        modules = [ast.parse(text) for text in texts]
        self.nodes = [node for module in modules for node in ast.walk(module)]
        self.functions = [node for node in self.nodes if isinstance(node, FUNCTIONS)]
        self.own_functions = [node for module in modules for node in module.body if isinstance(node, FUNCTIONS)]

    def share_per_thousand(self, is_counted: Callable[[ast.AST], bool]) -> str:
        """Count the nodes for each 1,000 lines that are not empty."""
        return f"{1000 * sum(map(is_counted, self.nodes)) / len(self.lines):.1f}"


def is_packed(node: ast.AST) -> bool:
    """Whether it is `a, b = x, y`: several assignments in one line."""
    if not isinstance(node, ast.Assign):
        return False
    return isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple)


def is_nested(node: ast.AST) -> bool:
    """Whether it is a comprehension inside of another, or one with several `for`."""
    if not isinstance(node, COMPREHENSIONS):
        return False
    inner = [child for child in ast.walk(node) if child is not node]
    return len(node.generators) > 1 or any(isinstance(child, COMPREHENSIONS) for child in inner)


def is_typed(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether each parameter and the result have a type."""
    given = function.args
    parameters = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    others = [each for each in parameters if each and each.arg not in {"self", "cls"}]
    return function.returns is not None and all(each.annotation for each in others)


def find_percentile(values: Iterable[int], percent: int) -> int:
    """Return the value that `percent` of all values do not exceed."""
    found = sorted(values)
    return found[round(percent / 100 * (len(found) - 1))]


def measure_code(code: Code) -> Mapping[str, str]:
    """Return the figures of a room by their columns."""
    lengths = [(node.end_lineno or node.lineno) - node.lineno + 1 for node in code.functions]
    one_word = [node for node in code.own_functions if "_" not in node.name.strip("_")]
    public = [node for node in code.functions if not node.name.startswith("_")]
    documented = [node for node in public if ast.get_docstring(node)]
    comments = [line for line in code.lines if line.startswith("#")]
    return {
        "files": str(len(code.file_lines)),
        "lines": f"{sum(code.file_lines):,}",
        "longest file": str(max(code.file_lines)),
        "function median": f"{statistics.median(lengths):.0f}",
        "p90": str(find_percentile(lengths, 90)),
        "longest": str(max(lengths)),
        "packed": code.share_per_thousand(is_packed),
        "nested": code.share_per_thousand(is_nested),
        "conditional": code.share_per_thousand(lambda node: isinstance(node, ast.IfExp)),
        "comment lines": f"{100 * len(comments) / len(code.lines):.1f}%",
        "typed": f"{100 * sum(map(is_typed, code.functions)) / max(1, len(code.functions)):.0f}%",
        "docstrings": f"{100 * len(documented) / max(1, len(public)):.0f}%",
        "functions of one word": f"{100 * len(one_word) / max(1, len(code.own_functions)):.0f}%",
    }


def main() -> None:
    """Print a row a room, and one for all."""
    folders = [PACKAGE / "cli", *(PACKAGE.glob("core/*")), *(PACKAGE.glob("connect/*")), *(PACKAGE.glob("operate/*"))]
    rooms = {str(path.relative_to(PACKAGE)): sorted(path.rglob("*.py")) for path in sorted(folders) if path.is_dir()}
    rooms = {name: files for name, files in rooms.items() if files}
    rooms["all"] = sorted(PACKAGE.rglob("*.py"))
    rows = {name: measure_code(Code(files)) for name, files in rooms.items()}
    columns = list(rows["all"])
    print(f"| room | {' | '.join(columns)} |")
    print(f"|{'---|' * (len(columns) + 1)}")
    for name, row in rows.items():
        print(f"| `{name}` | {' | '.join(row.values())} |")


if __name__ == "__main__":
    main()
