"""The frame and the look of the pages that the platform makes: a restore's report, and the status page."""

from markupsafe import Markup

PAGE = Markup(
    '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width"><title>{title}</title><style>{style}</style></head>\n'
    "<body><main>\n{body}</main></body></html>\n"
)
"""Takes `title`, `style` and `body`. It loads nothing from elsewhere."""

PAGE_STYLE = Markup("""
:root { --ink: #1d2733; --soft: #5d6b7a; --line: #dde3ea; --back: #fff; --page: #f4f6f8; --blue: #2f6fde;
  --pale: #d5e2f8; --red: #d03b3b; --green: #1a7f4b; --amber: #9a6200; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e9ef; --soft: #9aa7b5; --line: #313b47; --back: #1a212a;
  --page: #12171d; --blue: #6c9ef5; --pale: #2b3b57; --red: #f07c7c; --green: #5fc48d; --amber: #e0ab55; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 28px 20px 60px; }
h1 { font-size: 24px; margin: 0; overflow-wrap: anywhere; } h2 { font-size: 17px; margin: 0 0 10px; }
.way { color: var(--soft); margin: 2px 0 20px; overflow-wrap: anywhere; }
.head { display: flex; gap: 14px; align-items: center; flex-wrap: wrap; }
.badge { color: #fff; border-radius: 99px; padding: 2px 12px; font-size: 13px; font-weight: 600; white-space: nowrap; }
@media (prefers-color-scheme: dark) { .badge { color: #12171d; } }
.good { background: var(--green); } .plan { background: var(--blue); } .part { background: var(--amber); }
.bad { background: var(--red); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(130px, 1fr)); gap: 12px; }
.tile, section { background: var(--back); border: 1px solid var(--line); border-radius: 10px; }
.tile { padding: 12px 14px; }
.tile b { display: block; font-size: 20px; font-variant-numeric: tabular-nums; white-space: nowrap; }
.tile span, .legend { color: var(--soft); font-size: 13px; }
section { padding: 16px 18px; margin-top: 16px; overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th { text-align: left; color: var(--soft); font-weight: 600; font-size: 13px; white-space: nowrap; }
th, td { padding: 5px 12px 5px 0; border-bottom: 1px solid var(--line); vertical-align: middle; }
td.n, th.n { text-align: right; white-space: nowrap; } tr:last-child > * { border-bottom: 0; }
thead tr:last-child > * { border-bottom: 1px solid var(--line); } .wrap th { width: 220px; }
code { font: 12.5px ui-monospace, monospace; overflow-wrap: anywhere; }
td code { white-space: nowrap; } .wrap code { white-space: normal; }
ul { margin: 0; padding-left: 20px; } svg { display: block; }
.legend i { display: inline-block; width: 12px; height: 10px; border-radius: 2px; margin: 0 5px 0 14px; }
.legend i:first-child { margin-left: 0; }
.mark { border-left: 4px solid var(--amber); } .alarm { border-left: 4px solid var(--red); }
""")
