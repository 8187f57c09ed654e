"""Texts that tokenizers stumble over, and names of control tokens that a text may hold."""

from __future__ import annotations

AWKWARD = [
    "",
    " ",
    "\n",
    "a  b\n\n\tc ",
    "   three before and after   \n   ",
    "trailing newline\n",
    "\r\n windows \r\n\r\n",
    "naïve café e\u0301 — “quotes” …",
    "日本語のテキスト、改行\nとスペース　全角",
    "𠮷野家で髙島さんと葛\U000e0100城市の話をした。",
    "🎉👩‍👩‍👧‍👦 emoji, \u200b zero width, \ufeff mark, nul \x00",
    "\ufeffa mark at the beginning",
    "we've they'll I'M '' 's",
    "1234567890 3.14 x=2**10;",
    "<|endoftext|> <s></s> <unk> <0x0A> ▁x ▁▁",
    "\u2028 \x85 \xa0 \x1c spaces",
    "\U0010ffff \ufdd0 \ue000 no characters, and private ones",
]

CONTROLS = [
    "<|endoftext|>",
    "</s>",
    "<s>",
    "<unk>",
    "<pad>",
    "<mask>",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "[PAD]",
    "[UNK]",
    "<tool_call>",
    "<0x41>",
]

# Our own sentences; the rare characters lie outside the basic plane, have variants or are joined emoji.
JAPANESE = """\
朝の駅はいつも混んでいて、傘を持った人々が静かに電車を待っている。
「今日は雨が降るらしいですよ。」と、隣の人が小さな声で言った。
図書館の二階には、古い地図と珍しい本がたくさん並んでいる！
計算機で言葉を学ばせるには、まず文章を小さな部品に分けなければならない。
その部品の数は三千でも三万でもよいが、元の文章に正しく戻せることが大切だ。
髙橋さんは𠮷田さんと一緒に、葛\U000e0100城市の山へ登った。
山の上で食べたおにぎりは、とても美味しかった😀👨‍👩‍👧‍👦。
北海道の冬は長く、雪は四月まで残ることもある。本当だろうか？
ﾊﾝｶｸのカナと全角のＡＢＣ１２３が混ざった文も、そのまま残ってほしい。
川の流れは速く、石の上に座った子供たちは笹の舟を流して遊んでいた。
\t字下げの後に　　空白が二つ、  半角も二つ。
"""
