"""Java's regular expressions that `subscribePattern` takes, and those that it refuses."""

TRANSLATED = (
    "orders", "^orders$", "orders-.*", "^(orders|x)-\\w+\\z", "(?!old-).*orders", "(?<!old-)orders", "a.b", "a\\.b",
    "\\Qa.b\\E", "\\Qa.b", "[\\Q.-\\E]", "(?<word>eu)_\\k<word>", "(e)(u)_\\1\\2$", "\\p{Lower}+-\\p{Alpha}{2}\\Z",
    "^[\\p{Lu}\\d.]", "^\\P{Lower}", "\\pL\\p{Nd}?$", "^\\p{Punct}", "[^\\p{Alnum}_-]", "^a++b", "a*+ab", "a{2}+b",
    "(?i)ORDERS", "(?i:ORDERS)-eu", "(?i)or(?-i:ders)", "(?s)a.b", "(?i)(?s)A.B", "\\x61\\u0061b", "\\{2\\}", "o{1,}r",
    "[a&b]\\b", "[.^]", "[a-cX-]b", "x\\-1", "]|}2", "\\Aorders\\b", "(?:)", "\\.\\d{4}$", "_++x", "(?=or)(ord)?",
    "(?>a|aa)b",
)  # fmt: skip
REFUSED = (
    "\\p{javaLowerCase}", "\\p{IsAlphabetic}", "[\\P{Lower}]", "[a-z&&[^b]]", "[a[b]]", "[]a]", "[^]a]", "a(?i)b",
    "(?x)a", "(?iu)a", "\\h", "\\R", "\\X", "\\G", "\\0141", "\\cA", "\\e", "\\x{61}", "\\N{DIGIT ONE}", "\\b{g}",
    "(?<=a+)b", "(a)\\10", "\\2(a)", "(?P<a>x)", "(?P<a>x)(?P=a)", "(?#why)a", "(a)?(?(1)b|c)", "{2}", "a{,2}", "a{",
    "(", "a**", "[", "\\", "*a", "[\\w-.]", "[b-a]",
)  # fmt: skip
