"""Names as an attacker would choose them, where any text is allowed."""

ODD = [
    "' OR '1'='1", "x'); DROP TABLE rows; --", "it's", "''", "\\'", "a\\", '"a"', "a`b", "a%b_c*?[x]{y}",
    "../../_index",
    "..\\..\\", "%2e%2e%2f", "a\nkind = 'segment'", "a\x1b[2K\rb", "\u202egnp.exe", "<script>alert(1)</script>",
    "$(touch x); `touch y` | z", "${env:HOME}", "{0}{a}%s%d", "x" * 1000, "é\u2603\U0001f600", " ", "NULL", "a;b,c",
]  # fmt: skip
