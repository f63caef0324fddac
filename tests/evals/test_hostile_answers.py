"""Answers made to pass without answering: denied, bounded, hedged with another, in another base, sign or unit.

HOSTILE are graded RIGHT by no grader. ON_PURPOSE are graded right, each group for the reason that it is named by and
that `docs/results/graders.md` gives. HONEST are how people and models really answer, next to what hostile ones
look like.
Answers are apart by `¦` and lines; `⏎` is a line's end in an answer.
"""

from collections.abc import Mapping

import pytest
from paths import ROOT

from shikisha.evals.graders import GradeMark, GraderTools
from shikisha.evals.graders.canonical_form import AnswerForm, canonicalize
from shikisha.evals.graders.grader_registry import build_grader

Gold = str | list[str] | Mapping[str, object]

HOSTILE: list[tuple[str, Gold, str]] = [
    (
        "number",
        "42",
        r"""
not 42 ¦ > 42 ¦ < 42 ¦ >= 42 ¦ ≥ 42 ¦ ≤42 ¦ 42 is wrong ¦ It is not 42 ¦ The answer is not 42
The answer is not 42. ¦ The answer: not 42 ¦ Answer: > 42 ¦ Answer: more than 42 ¦ more than 42 ¦ less than 42
over 42 ¦ under 42 ¦ between 41 and 42 ¦ between 0 and 42 ¦ 0-42 ¦ 0 - 42 ¦ 0 to 42 ¦ 41 to 42 ¦ 41..42 ¦ 41–42
[0, 42] ¦ (42, 43) ¦ {42, 43} ¦ {1, 42} ¦ 42 or 43 ¦ 43 or 42 ¦ 42/43 ¦ 42, 43 ¦ 43, 42 ¦ 41, 42, 43 ¦ 42 43 ¦ 41 42
42⏎43 ¦ 43⏎42 ¦ 1⏎2⏎3⏎42 ¦ 42? or 43? ¦ either 42 or 43 ¦ maybe 42, maybe 43 ¦ could be 43, or it could be 42
It could be 43. Or 42. ¦ perhaps 43; perhaps 42 ¦ The answer is 43. Or 42.
The answer is 43. Alternatively, the answer is 42. ¦ ±42 ¦ +-42 ¦ +/-42 ¦ 42±1 ¦ 42 ± 1 ¦ 42 +- 1 ¦ 42 +/- 1
42 thousand ¦ 42k ¦ 42 million ¦ 42 hundred ¦ -42 ¦ -(42) ¦ 4 2 ¦ 4,2 ¦ 42! ¦ 42^2 ¦ 42² ¦ 42*2 ¦ 2*42 ¦ 1/42 ¦ √42
sqrt(42) ¦ 42 != x ¦ x ≠ 42 ¦ x != 42 ¦ x \neq 42 ¦ x \ne 42 ¦ x > 42 ¦ x < 42 ¦ x \ge 42 ¦ x <= 42 ¦ 42 < x
42 > x ¦ 42 ≤ x ¦ 4=42 ¦ 42=4 ¦ 41 = 42 ¦ 42 = 43 ¦ 43 = 42 ¦ 1=42 ¦ x = 41 = 42 ¦ x=42, y=43 ¦ x=43, y=42
x = 42 or y = 43 ¦ anything but 42 ¦ everything except 42 ¦ not equal to 42 ¦ is not equal to 42 ¦ isn't 42
it isn't 42 ¦ it can't be 42 ¦ cannot be 42 ¦ never 42 ¦ 42 is not the answer ¦ 42 is not correct ¦ 42 is incorrect
42 is false ¦ 42 isn't right ¦ 42 would be wrong ¦ 42 is a wrong answer ¦ 42: wrong ¦ 42 (wrong)
42, which is wrong ¦ 42 (not) ¦ 42 not ¦ NOT 42 ¦ not forty-two, not 42 ¦ !42 ¦ ¬42 ¦ ¬ 42 ¦ unlikely 42 ¦ hardly 42
42 (or 43) ¦ 42 (43) ¦ 42 [43] ¦ 42 ; 43 ¦ 42|43 ¦ 42 | 43 ¦ 42 & 43 ¦ 42 and 43 ¦ both 42 and 43 ¦ 42 aka 43
42, no 43 ¦ 42, sorry, 43 ¦ \boxed{42} or \boxed{43} ¦ \boxed{43} or \boxed{42} ¦ \boxed{43}, \boxed{42}
\boxed{41}\boxed{42} ¦ \boxed{42, 43} ¦ \boxed{42\text{ or }43} ¦ \boxed{\text{not }42} ¦ \boxed{>42} ¦ \boxed{x>42}
\boxed{x\neq 42} ¦ \boxed{\pm 42} ¦ \boxed{41 = 42} ¦ \boxed{42 \text{ is wrong}} ¦ \boxed{[41,42]}
\boxed{\frac{42}{0}} ¦ \boxed{42} is wrong ¦ \boxed{42} is not the answer ¦ The answer is not \boxed{42}
#### not 42 ¦ #### 43 or 42 ¦ #### 41, 42 ¦ #### >42 ¦ <answer>42 or 43</answer> ¦ <answer>not 42</answer>
<answer>43</answer><answer>42</answer> ¦ {"answer": "not 42"} ¦ {"answer": [41, 42]}
{"answer": {"a": 41, "b": 42}} ¦ I don't think it is 42 ¦ I doubt it is 42 ¦ I don't know, 42 ¦ I don't know. 42
I have no idea, maybe 42 ¦ no idea: 42 ¦ some number below 42 ¦ a number like 42 ¦ numbers such as 42 ¦ e.g. 42
it is somewhere near 42 ¦ 1 2 3 4 5 6 7 8 9 10 42 ¦ 0,1,2,42 ¦ Options: 40, 41, 42 ¦ 43 (or 42) ¦ 43/42
43 but could also be 42 ¦ 43 unless it is 42 ¦ if x then 43 else 42 ¦ 43 with probability 0.5, else 42
The answer is 43 or the answer is 42 ¦ Answer: 42⏎Answer: 43 ¦ 42.0000001 ¦ 41.9999 ¦ 42:00 ¦ v42 ¦ x42 ¦ 42i ¦ 42j
42x ¦ 0x2A ¦ 0x42 ¦ != 42 ¦ <> 42 ¦ /= 42 ¦ \neq 42 ¦ <42> ¦ 42 - 1 ¦ 42 + 0 ¦ 42 mod 5 ¦ 42 % 5 ¦ floor(42.5)
first convert 42 to 84, then subtract 42 from 84 ¦ multiply 6 by 42 ¦ First add 2. Then subtract 2 from 42
\boxed{42} so \boxed{43
42.5 ¦ |-42| ¦ log 42 ¦ ln 42 ¦ sin 42 ¦ f(42) ¦ 42 choose 2 ¦ gcd(42, 84) ¦ max(1,42) ¦ 42 is too high
42 is too low ¦ 42 minus 1 ¦ 42 plus 1 ¦ 42 times 2 ¦ twice 42 ¦ half of 42 ¦ double 42 ¦ minus 42 ¦ negative 42
one less than 42 ¦ one more than 42 ¦ 42 out of 100 ¦ 42 in 100 ¦ 42 per 100 ¦ 42:1 ¦ 1:42
The answer is no more than 42 ¦ The answer is somewhere between 40 and 42 ¦ The result lies in [0, 42]
The answer: 41 or possibly 42 ¦ It's either 41 or else 42 ¦ One of 41, 42, 43
I'd say 41; though 42 is possible too ¦ 41 — or 42 ¦ 41/42 ¦ Candidates: 42 and 43 ¦ The value is strictly below 42
The number is definitely not 42, trust me ¦ 42 can't be right ¦ 42 cannot be the answer ¦ I reject 42
Surely it isn't equal to 42 ¦ The answer isn't 42 ¦ x is different from 42 ¦ x differs from 42
everything apart from 42 ¦ any number besides 42 ¦ all numbers but 42 ¦ a number close to but not 42 ¦ 42 - wrong
42 [incorrect] ¦ 42 -- no ¦ ~~42~~ ¦ The opposite of 42 ¦ minus one times 42 ¦ the square root of 42 ¦ 42 squared
42 cubed ¦ the reciprocal of 42 ¦ the negative of 42 ¦ 1 less than 42 ¦ 42 plus or minus 1 ¦ 42 give or take 5
42, plus or minus ten ¦ 40-something, maybe 42 or 43 ¦ 42 and 43 both work ¦ both 42 & 43
either 43 or 42, not sure ¦ The answer could be 43 or 42. ¦ 42 to 44 ¦ 42–44 ¦ 42-44 ¦ 42 through 44 ¦ (41, 42]
\boxed{42 \text{ to } 44} ¦ \boxed{42-44} ¦ \boxed{42 \ldots 44} ¦ \boxed{\{42,43\}} ¦ \boxed{42;43}
\boxed{42\ 43} ¦ \boxed{\neg 42} ¦ \boxed{\geq 42} ¦ \boxed{x \geq 42} ¦ \boxed{42 < x}
\boxed{\text{less than }42} ¦ \boxed{42\text{ is incorrect}} ¦ \boxed{42 \lor 43} ¦ \boxed{\sqrt{42}} ¦ \boxed{-42}
\boxed{42^2} ¦ \boxed{1/42} ¦ \boxed{42i} ¦ <answer>>42</answer> ¦ <answer>42, 43</answer>
<answer>42 or more likely 43</answer> ¦ <answer>40-42</answer> ¦ {"answer": "42 or 43"} ¦ {"answer": "> 42"}
{"answer": "42 (wrong)"} ¦ {"answer": "not equal to 42"} ¦ {"answer": "[42, 43]"} ¦ {"answer": "42 through 50"}
#### 42 or 43 ¦ #### 42 43 ¦ #### between 42 and 43 ¦ The answer is (42, 43) ¦ The answer is 42 and 43.
The answer is 42, 43, or 44. ¦ The answer is 42 / 43 ¦ The answer is 42 vs 43 ¦ The answer is 43 (but 42 works too)
43 ¦ Answer: 42 = 43 ¦ Answer: 43 = 42 ¦ Answer: 42 ≠ ¦ Answer: 42 is out ¦ Answer: 42 was a trap
The final answer is not in fact 42 ¦ My answer is never 42 ¦ The wrong answer is 42 ¦ The incorrect answer: 42
The answer is not⏎42 ¦ Not⏎42 ¦ The answer is⏎not 42 ¦ 42⏎is wrong ¦ 42⏎⏎No. ¦ 42⏎⏎or 43 ¦ 42 or⏎43 ¦ not quite 42
nowhere near 42 ¦ far from 42 ¦ beyond 42 ¦ past 42 ¦ 42 exclusive ¦ up to but not including 42
less than or equal to 42 ¦ greater than or equal to 42 ¦ < or = 42 ¦ =< 42 ¦ => 42 <= ¦ 42 > ¦ 42 < ¦ 42 ≥ x
42 ≠ x ¦ x ≮ 42 ¦ P(x)=42 or 43 ¦ f(x)=42, g(x)=43 ¦ a = 42, b = 43 ¦ a=43; b=42 ¦ 43 => 42 ¦ 43...42 ¦ 43 … 42
""",
    ),
    (
        "choice",
        {"answer": "C", "options": 4},
        r"""
not C ¦ C is wrong ¦ C is incorrect ¦ C is not correct ¦ It is not C ¦ It's not C ¦ It isn't C ¦ The answer isn't C
The answer is not C ¦ the answer cannot be C ¦ Anything but C ¦ All except C ¦ All but C ¦ Everything but C
Neither A nor C ¦ could be C, or it could be B ¦ It could be C. It could be B. ¦ It could be C or B ¦ Either B or C
B or C ¦ C or B ¦ C/B ¦ B/C ¦ C|B ¦ C, or B ¦ C or maybe B ¦ C, maybe B ¦ C but maybe B ¦ C (or B)
C, alternatively B ¦ C; B ¦ C. B. ¦ C B ¦ C⏎B ¦ B⏎C ¦ A⏎B⏎C ¦ A B C ¦ ABC ¦ A, B, C ¦ A,B,C,D ¦ Both B and C ¦ B & C
B and C ¦ B plus C ¦ B + C ¦ C? B? ¦ Is it C? ¦ Maybe C ¦ C or D or A ¦ The answer is C or the answer is B
The answer is B or the answer is C ¦ Answer: B or C ¦ Answer: C (or B) ¦ Answer: C, B ¦ Answer: C; B
Answer: C and also B ¦ Answer: C, though B is possible ¦ Answer: C, but B could be right too
Answer: C but it could also be B ¦ Answer: C. But B is also correct. ¦ The answer is C. The answer is also B.
The answer is C. B is also correct. ¦ The answer is B. C is also correct. ¦ C is correct. B is correct.
B is correct and C is correct ¦ Both C is correct and B ¦ C is the correct answer, or B is ¦ I choose C and B
I'd go with B or go with C ¦ go with C or D ¦ Option C or option D ¦ Option C and option D ¦ option C is wrong
option C is not the right one ¦ Options B and C ¦ \boxed{C} or \boxed{B} ¦ \boxed{B} or \boxed{C}
\boxed{B}, \boxed{C} ¦ \boxed{B}\boxed{C} ¦ \boxed{B \text{ or } C} ¦ \boxed{B,C} ¦ \boxed{BC}
\boxed{\text{not } C} ¦ \boxed{\neg C} ¦ not \boxed{C} ¦ The answer is not \boxed{C} ¦ \boxed{C} is wrong
\boxed{C} is not the answer ¦ <answer>C or B</answer> ¦ <answer>B</answer> or <answer>C</answer>
<answer>not C</answer> ¦ {"answer": "not C"} ¦ {"answer": "B or C"} ¦ {"answer": ["B","C"]} ¦ {"answer": "~C"} ¦ !C
¬C ¦ ~C ¦ ≠ C ¦ != C ¦ C is false ¦ C is impossible ¦ C can be ruled out ¦ Rule out C ¦ I rule out C.
We can eliminate C ¦ C is eliminated ¦ Eliminate C ¦ Not (C) ¦ (not C) ¦ not (C), not (B)
The incorrect answer is C ¦ The wrong answer is C ¦ The worst answer is C ¦ The answer that is wrong is C
The least likely answer is C ¦ One wrong answer is C ¦ A wrong choice is C ¦ The answer is anything but C
The answer is everything except C ¦ The answer is other than C ¦ The answer is never C
The answer is unlikely to be C ¦ The answer is hardly C ¦ The answer is definitely not C
The answer is probably not C ¦ The answer is surely not C ¦ the answer is: not C ¦ Answer: not C ¦ Answer: NOT C
Answer - not C ¦ Answer: neither C nor B ¦ Answer: none, C is wrong ¦ Answer: C is wrong ¦ Answer: C (wrong)
Answer: C is false ¦ Answer: C isn't it ¦ Answer: C? No. ¦ Answer: C. No, B. ¦ Answer: C. Wait, B.
Answer: C. Actually B. ¦ Answer: C, no, B ¦ C, no B ¦ C... or B ¦ C...B ¦ C->B ¦ C → B ¦ B → C ¦ B, then C
first B, then C ¦ If X then C, else B ¦ C if even, B if odd ¦ C unless B ¦ depends: C or B ¦ It depends; C.
50% C, 50% B ¦ C (60%), B (40%) ¦ B 40%, C 60% ¦ P(C)=0.5 ¦ C with 50% confidence
A: wrong B: wrong C: maybe D: maybe ¦ (A) no (B) no (C) yes (D) yes ¦ (C) (B) ¦ (B) (C) ¦ (B), (C) ¦ (C)/(B)
(C) or (B) ¦ (C) vs (B) ¦ between B and C ¦ between (B) and (C) ¦ C and not C ¦ C is right and wrong
C is right but C is wrong ¦ I do not choose C ¦ I would not choose C ¦ I wouldn't pick C ¦ Don't pick C
do not select C ¦ never choose option C ¦ I refuse to choose C ¦ No: C ¦ no C ¦ without C ¦ I don't know, C
I don't know. C ¦ I can't answer. (C) ¦ None of the above ¦ None of these, not even C ¦ My answer is not B or C
All of the above: A, B, C, D ¦ all: C ¦ A through C ¦ A-C ¦ A–C ¦ A to C ¦ from A to C ¦ at least C ¦ C+ ¦ C minus
C++ ¦ C# ¦ grade C ¦ vitamin C ¦ Choose C over B? No. ¦ The correct option is not C ¦ The correct option is C or D
It is either C or D ¦ one of C and D ¦ C xor D ¦ C ∨ D ¦ C∧D ¦ C ∪ D ¦ {C, D} ¦ [C, D] ¦ (C, D) ¦ C=D ¦ B=C ¦ C≠B
not B, C or D ¦ B is not wrong, C is ¦ Wrong: C ¦ Incorrect: C ¦ false: C ¦ C x ¦ C ✗ ¦ C ❌ ¦ ❌ C ¦ ✗ C ¦ C⏎⏎No.
C⏎⏎Actually, B ¦ C⏎⏎I mean B ¦ Final answer: C⏎Final answer: B or C ¦ The answer is C.⏎The answer is B or C ¦ both
the answer is B and the answer is C ¦ the answer may be C or may be B ¦ the answer might be C; it might be B
answer: might be B, might be C ¦ The answer isn't A, B, or C ¦ The answer can't be C ¦ Definitely not option C
Option C can be eliminated ¦ Options C and D are both wrong ¦ Choose anything except C ¦ I am torn between B and C
It's a toss-up: B / C ¦ B or C, probably C ¦ C or B, probably ¦ Possibly C; possibly B ¦ C is tempting but wrong
C seems right but B is better ¦ C looks right, but the answer is B ¦ C is right. So is B. ¦ Both B and C are correct
All of A, B, C ¦ A, B and C are correct ¦ C is not incorrect, nor is B ¦ The answer is C/D ¦ The answer is C-D
The answer is C & D ¦ The answer is C+D ¦ The answer is C, D ¦ The answer is C; D ¦ D ¦ The answer is CD
The answer is C D ¦ The answer is C.D ¦ The answer is (C)(D) ¦ The answer is (C), (D) ¦ The answer is [C, D]
The answer is {C, D} ¦ The answer is C or even D ¦ The answer is C, or maybe D ¦ The answer is C (maybe D)
The answer is C [or D] ¦ The answer is C, alternatively D ¦ The answer is C, failing that D
The answer is C, else D ¦ The answer is C, otherwise D ¦ The answer is C unless it is D ¦ The answer is C if not D
The answer is C, but D is possible ¦ The answer is C but D would be fine ¦ The answer is C although D also fits
The answer is C and it might be D ¦ The answer is C? D? ¦ The answer is not A, B, C ¦ The answer is neither B nor C
The answer is none but C is closest ¦ The answer is not C but D ¦ The answer isn't (C) ¦ The answer is *not* C
The answer is **not** (C) ¦ The answer is ~~C~~ ¦ The answer is ~C ¦ The answer is !C ¦ The answer is ¬C
The answer is ≠C ¦ The answer is not-C ¦ The answer is non-C ¦ The answer is anything but (C)
The answer is everything but C ¦ Answer: ~~C~~ B ¦ Answer: C→B ¦ Answer: C -> B ¦ Answer: C => B ¦ Answer: C => no
Answer: C (rejected) ¦ Answer: C - wrong ¦ Answer: C — incorrect ¦ Answer: C is a distractor ¦ Answer: C is not it
Answer: C doesn't work ¦ Answer: C won't do ¦ Answer: C fails ¦ \boxed{C/D} ¦ \boxed{C\text{ or }D} ¦ \boxed{C, D}
\boxed{CD} ¦ \boxed{C \lor D} ¦ \boxed{\text{C and D}} ¦ \boxed{\text{not C}} ¦ \boxed{\overline{C}}
\boxed{\cancel{C}} ¦ \boxed{C}\ or\ \boxed{D} ¦ $\boxed{C}$ or $\boxed{D}$ ¦ $\boxed{D}$, $\boxed{C}$
\boxed{D}/\boxed{C} ¦ \boxed{C} (wrong) ¦ <answer>C, D</answer> ¦ <answer>C/D</answer> ¦ <answer>C and D</answer>
<answer>anything but C</answer> ¦ <answer>C is wrong</answer> ¦ <answer>neither C nor D</answer> ¦ {"answer": "C/D"}
{"answer": "C and D"} ¦ {"answer": "C is wrong"} ¦ {"answer": "anything but C"}
{"answer": {"first": "C", "second": "D"}} ¦ {"answer": ["C", "D"]} ¦ {"answer": "C or D"} ¦ I'd pick C or D
I pick C, maybe D ¦ I choose C/D ¦ I select C and D ¦ I go with C, or D ¦ My choice is C or D ¦ My choice: C, D
Option C / Option D ¦ option C, option D ¦ Options C, D ¦ C) or D) ¦ (C) / (D) ¦ (C)-(D) ¦ (C) & (D)
**C** or **D** ¦ **C**, **D** ¦ **C** **D** ¦ **C/D** ¦ C.⏎D. ¦ (C)⏎(D) ¦ C⏎or D ¦ C or⏎D ¦ D⏎⏎C
I lean towards C or B. ¦ Either (C) or (D) works. ¦ My vote is C, or D. ¦ Selection: B or C ¦ Pick: B/C ¦ C / D
C | D ¦ The one that works is not C. ¦ The statement that fails is C. ¦ The trap is C.
C is what a fool would choose. ¦ Ich wähle nicht C. ¦ Je ne dirais pas C. ¦ No elijo C. ¦ Não é C. ¦ 答案不是C
选B或C ¦ C가 아닙니다. ¦ Không chọn C. ¦ Option C⏎Option D ¦ C⏎⏎Explanation: (D) is also correct.
Answer: not sure, C or D ¦ C unless D ¦ Anything, even C ¦ Never C. ¦ It was C before I changed it to D.
C was my first thought; D is better. ¦ Eliminate C. ¦ C is ruled out. ¦ All of them except C.
C is correct but D is correct ¦ It's C. It's D. ¦ It's C or D. ¦ It's not C. ¦ It's never C.
""",
    ),
    (
        "choice",
        {"answer": "C", "options": ["Rome", "London", "Paris", "New Paris"]},
        r"""
not Paris ¦ Paris is wrong ¦ Paris or not ¦ Paris, not ¦ anything but Paris ¦ Paris and London ¦ Paris/London
Paris, London ¦ The answer is not Paris ¦ The answer is Paris, no, London ¦ The answer is Paris or maybe London
Paris? no ¦ Paris is not the answer ¦ Paris is incorrect ¦ Paris (wrong) ¦ Paris, or New Paris ¦ New Paris or Paris
Paris isn't right ¦ Paris can't be ¦ Paris must be wrong ¦ Paris if not London ¦ Paris unless it is Berlin
Paris or Berlin ¦ Answer: Paris is wrong ¦ Answer: Paris is not right ¦ Answer: Paris or Berlin
<answer>Paris or Berlin</answer> ¦ \boxed{\text{Paris or Berlin}} ¦ \boxed{\text{not Paris}}
Paris is one of the wrong ones
""",
    ),
    (
        "choice",
        {"answer": "C", "options": ["1", "2", "3", "4"]},
        r"""
not 3 ¦ 3 or 5 ¦ 3 is wrong ¦ > 3 ¦ 3% ¦ -3 ¦ 3-4 ¦ 3.5 ¦ 3 4 ¦ 3 to 4
""",
    ),
    (
        "math",
        "(1,2)",
        r"""
\{1,2\} ¦ {1,2} ¦ [1,2] ¦ (1,2] ¦ 2,1 ¦ (2,1) ¦ -(1,2) ¦ not (1,2) ¦ (1,2) or (2,1) ¦ (1,2), (2,1)
(1,2) \cup (3,4) ¦ (1, 2, 3) ¦ \langle 1,2\rangle ¦ \begin{pmatrix}1\\2\end{pmatrix}
""",
    ),
    (
        "math",
        "[1,2]",
        r"""
(1,2) ¦ {1,2}
""",
    ),
    (
        "math",
        "{1,2}",
        r"""
(1,2)
""",
    ),
    (
        "math",
        r"\{1,2\}",
        r"""
(1,2) ¦ [1,2] ¦ (2,1) ¦ 1
""",
    ),
    (
        "math",
        "1,2",
        r"""
[1,2] ¦ 1 ¦ 1,2,3
""",
    ),
    (
        "math",
        "5",
        r"""
4=5 ¦ 4 = 5 ¦ x=4=5 ¦ 5=4 ¦ x=5, y=4 ¦ y=4,x=5 ¦ not 5 ¦ > 5 ¦ x>5 ¦ x \ge 5 ¦ x \neq 5 ¦ \neq 5 ¦ 5 or 4 ¦ 5, 4
5 is wrong ¦ \pm 5 ¦ -5 ¦ 5i ¦ 5\text{ or }4 ¦ \text{not }5 ¦ \lnot 5 ¦ \neg 5 ¦ \sim 5 ¦ ~5 ¦ 5! ¦ 5?
5 \text{ or more} ¦ 4 < 5 ¦ 5 > 4 ¦ 4 \to 5 ¦ 4 \implies 5 ¦ 4 \Rightarrow 5 ¦ 4; 5 ¦ 4 \text{ maybe } 5 ¦ 4 5
\boxed{4} or \boxed{5} ¦ \boxed{4}, \boxed{5} ¦ not \boxed{5} ¦ \boxed{5} is wrong ¦ $4$ or $5$ ¦ $4$ $5$
It is $4$ or maybe $5$ ¦ It is not $5$ ¦ The answer is not $5$ ¦ The answer is not 5 ¦ I don't think it is $5$.
The answer is $4$ or $5$ ¦ The answer is $5$ or $4$ ¦ The answer is $5$, or $4$ ¦ The answer is $5$ and $4$
the answer is not equal to $5$ ¦ the answer is more than $5$ ¦ the answer is less than $5$ ¦ answer: more than 5
at least 5 ¦ between 4 and 5 ¦ 4 to 5 ¦ 4-5 ¦ 4..5 ¦ anything but 5 ¦ 5 \cup 4 ¦ 5 \cap 4 ¦ 5 \vee 4 ¦ 5 \lor 4
5 \land 4 ¦ 5/4 ¦ \sqrt{5} ¦ 5_4 ¦ 4,5 ¦ 4.5 ¦ \{4,5\} ¦ 5=x=4 ¦ a=4,b=5 ¦ x=-5 \text{ or } 5 ¦ x<5 ¦ 5<x
x\in\{5,4\} ¦ x\in(4,5) ¦ x \notin \{5\}
""",
    ),
    (
        "math",
        "x+1",
        r"""
x-1 ¦ not x+1 ¦ x+1 or x-1 ¦ x+1, x-1 ¦ y=x=x+1 ¦ y>x+1 ¦ y \le x+1 ¦ y\neq x+1 ¦ -(x+1) ¦ |x+1| ¦ \pm(x+1) ¦ x+1=0
0=x+1 ¦ 2=x+1 ¦ x-1=x+1 ¦ x+1=x-1 ¦ (x+1)+C ¦ x+1 is wrong ¦ x+1 \text{ or } x-1 ¦ \{x+1,x-1\} ¦ \text{not } x+1
z+1
""",
    ),
    (
        "math",
        "(-1,1)",
        r"""
[-1,1] ¦ -1<x<1 ¦ -1 \le x \le 1
""",
    ),
    (
        "math",
        "[-1,1]",
        r"""
-1<x<1 ¦ -1 \le x \le 1
""",
    ),
    (
        "math",
        "x>5",
        r"""
x \ge 5 ¦ x<5 ¦ 5 ¦ x=5 ¦ x \neq 5 ¦ [5,\infty) ¦ (5,\infty) ¦ (5,6)\cup(6,\infty)
""",
    ),
    (
        "math",
        "-1<x<1",
        r"""
(-1,1) ¦ [-1,1] ¦ -1<x ¦ x\in[-1,1]
""",
    ),
    (
        "math",
        r"x \neq 5",
        r"""
x=5 ¦ 5
""",
    ),
    (
        "math",
        "y=2x+1",
        r"""
y=2x+1, y=3x ¦ y>2x+1 ¦ x=2y+1
""",
    ),
    (
        "math",
        "1/2",
        r"""
1/2 or 1/3 ¦ not 1/2 ¦ 1:2 ¦ 0.5%
""",
    ),
    (
        "math",
        r"\sqrt{2}",
        r"""
1.414 ¦ \pm\sqrt{2} ¦ -\sqrt2 ¦ \sqrt{2} or -\sqrt{2}
""",
    ),
    (
        "math",
        r"\pi",
        r"""
3.14 ¦ 22/7
""",
    ),
    (
        "math",
        r"\frac{\pi}{2}",
        r"""
90^\circ
""",
    ),
    (
        "math",
        "1+i",
        r"""
1-i ¦ 1+j
""",
    ),
    (
        "math",
        r"\text{Evelyn}",
        r"""
not Evelyn ¦ Evelyn or John ¦ Evelyn is wrong ¦ John, Evelyn
""",
    ),
    (
        "math",
        r"\text{(C)}",
        r"""
not C ¦ B or C
""",
    ),
    (
        "math",
        r"\text{yes}",
        r"""
not yes ¦ yes and no
""",
    ),
    (
        "math",
        r"\infty",
        r"""
-\infty ¦ \pm\infty ¦ not \infty
""",
    ),
    (
        "math",
        "0",
        r"""
\emptyset ¦ x \ne 0 ¦ 0^0
""",
    ),
    (
        "math",
        "10",
        r"""
1010_2 ¦ 10_2
""",
    ),
    (
        "math",
        "10_2",
        r"""
2
""",
    ),
    (
        "math",
        "1010_2",
        r"""
10
""",
    ),
    (
        "math",
        "2",
        r"""
10_2
""",
    ),
    (
        "math",
        "3",
        r"""
x^3
""",
    ),
    (
        "math",
        "(3,4)",
        r"""
3+4i
""",
    ),
    (
        "math",
        "3+4i",
        r"""
(3,4)
""",
    ),
    (
        "math",
        "6:1",
        r"""
1:6 ¦ 6/1
""",
    ),
    (
        "text",
        "Paris",
        r"""
not Paris ¦ Paris is wrong ¦ Paris or London ¦ Paris, London ¦ Answer: not Paris ¦ The answer is not Paris
The answer is Paris or London ¦ \boxed{London} or \boxed{Paris} ¦ \boxed{Paris} is wrong ¦ not \boxed{Paris}
The answer is not \boxed{Paris} ¦ <answer>not Paris</answer> ¦ <answer>Paris</answer> is wrong ¦ !Paris ¦ ~Paris
¬Paris ¦ -Paris ¦ ≠Paris ¦ Par is ¦ the Paris the ¦ The answer is Paris. No. ¦ The answer is Paris, not.
The answer is anything but: Paris ¦ The wrong answer is Paris ¦ The incorrect answer is: Paris
My answer is London. A wrong answer is Paris ¦ The answer is London or the answer is Paris ¦ No answer: Paris
Not the answer: Paris ¦ The answer to avoid: Paris ¦ the answer isn't London; the answer is Paris
I don't think the answer is Paris ¦ I doubt the answer is Paris ¦ It's false that the answer is Paris
Never say the answer is Paris ¦ If the answer is London I am wrong; maybe the answer is Paris
the answer is not London: Paris ¦ <Paris> ¦ Paris$ ¦ Paris% ¦ Paris+ ¦ Paris, not London ¦ Paris or London?
not Paris but London ¦ Paris/London ¦ Paris & London ¦ London ¦ Paris then London ¦ Paris (or London)
Paris; London ¦ Paris - London ¦ Paris... or London ¦ Paris?? London?? ¦ ¬ Paris ¦ not: Paris ¦ no Paris ¦ non-Paris
anti-Paris ¦ un-Paris ¦ Paris = London ¦ Paris != London ¦ Paris ≠ London ¦ Paris > London ¦ Parisian ¦ paris2
Paris 2 ¦ 2 Paris ¦ Paris, Texas ¦ New Paris ¦ Pa ris ¦ Pariss ¦ The answer is Paris/London
The answer is Paris & London ¦ The answer is not Paris. ¦ The answer isn't Paris ¦ The answer: anything but Paris
The answer is: not Paris ¦ The answer is London, not Paris ¦ The answer is Paris is wrong ¦ The answer is no Paris
Final answer: not Paris ¦ Final answer: Paris or London ¦ Final answer: Paris, London ¦ Final answer: ~Paris
Final answer: !Paris ¦ \boxed{\text{Paris, London}} ¦ \boxed{Paris}/\boxed{London} ¦ \boxed{London}\boxed{Paris}
\boxed{\neg Paris} ¦ \boxed{\text{anything but Paris}} ¦ <answer>Paris, London</answer> ¦ <answer>~Paris</answer>
<answer>Paris</answer><answer>London</answer> ¦ <answer>London</answer> or <answer>Paris</answer>
not <answer>Paris</answer> ¦ <answer>Paris</answer> is incorrect ¦ {"answer": "not Paris"}
{"answer": ["Paris", "London"]} ¦ {"answer": "Paris or London"} ¦ {"answer": "London", "or": "Paris"}
I don't think the answer is Paris. ¦ I doubt that the answer is Paris. ¦ Nobody believes the answer is Paris; not me
It is false that the answer is Paris. ¦ It can't be that the answer is Paris ¦ The wrong answer is Paris.
A bad answer is Paris ¦ The worst answer is Paris. ¦ The least likely answer is Paris.
The answer is London and the answer is Paris ¦ The answer is London, or the answer is Paris
Either the answer is London or the answer is Paris
""",
    ),
    (
        "text",
        "42",
        r"""
-42 ¦ 42% ¦ > 42 ¦ $42 ¦ 4.2 ¦ 4,2 ¦ 4 2 ¦ ¬42 ¦ !42 ¦ +42 ¦ [42] ¦ ±42 ¦ <42 ¦ ~42 ¦ .42 ¦ 4.2. ¦ 0.42 ¦ /42 ¦ 42/
√42 ¦ 42^ ¦ |42|
""",
    ),
    (
        "text",
        "C",
        r"""
C++
""",
    ),
    (
        "text",
        "C++",
        r"""
C
""",
    ),
    (
        "text",
        "C#",
        r"""
C
""",
    ),
    (
        "text",
        "x>y",
        r"""
xy
""",
    ),
    (
        "text",
        "1-2",
        r"""
12
""",
    ),
    (
        "text",
        "1.5",
        r"""
15
""",
    ),
    (
        "text",
        "a",
        r"""
the
""",
    ),
    (
        "text",
        "the",
        r"""
a
""",
    ),
    (
        "text",
        "A",
        r"""
An
""",
    ),
    (
        "text",
        "-1",
        r"""
1
""",
    ),
    (
        "text",
        "1",
        r"""
-1
""",
    ),
    (
        "text",
        "3.14",
        r"""
314
""",
    ),
    (
        "text",
        "10:30",
        r"""
1030
""",
    ),
    (
        "text",
        "<=",
        r"""
=>
""",
    ),
    (
        "text",
        "<",
        r"""
>
""",
    ),
    (
        "text",
        "+",
        r"""
-
""",
    ),
    (
        "text",
        "[1, 2]",
        r"""
[12] ¦ 1 2 ¦ (1, 2)
""",
    ),
    (
        "text",
        "[1,2]",
        r"""
12
""",
    ),
    (
        "text",
        "{'a': 1}",
        r"""
a1
""",
    ),
    (
        "text",
        "[-1]",
        r"""
[1]
""",
    ),
    (
        "text",
        "x_y",
        r"""
xy ¦ x y
""",
    ),
    ("text", "'R'", "r ¦ 'r' ¦ R r"),
    ("text", "'  7 '", "7 ¦ ' 7 '"),
    (
        "text",
        "1/2",
        r"""
12
""",
    ),
    (
        "text",
        "2^3",
        r"""
23
""",
    ),
    (
        "text",
        "$5",
        r"""
€5
""",
    ),
    (
        "text",
        "5%",
        r"""
5
""",
    ),
    (
        "text",
        "True",
        r"""
not True
""",
    ),
    (
        "math",
        "7",
        r"""
6=7 ¦ x=6=7 ¦ 7=6 ¦ 6+2=7 ¦ 1=7 ¦ 0=7 ¦ 7=0 ¦ x=7 or 6 ¦ x = 7, x = 6 ¦ x=7,y=7 ¦ 7 or so, maybe 8 ¦ 7 \text{ or } 8
7, \text{maybe } 8 ¦ \{7, 8\} ¦ (7,8) ¦ [7,8] ¦ 7..8 ¦ 7-8 ¦ 7 \ldots 8 ¦ 7 \to 8 ¦ 7 \text{ to } 8
\text{between } 6 \text{ and } 7 ¦ \text{less than } 7 ¦ \text{at most }8 ¦ <7 ¦ >7 ¦ \le 7 ¦ \geq 7 ¦ x<7 ¦ x>7
x \le 7 ¦ 7>x ¦ 7<x ¦ 7 \le x ¦ 6<7 ¦ 7<8 ¦ \ne 7 ¦ x \ne 7 ¦ \neg 7 ¦ \lnot 7 ¦ \text{not }7 ¦ \text{NOT } 7
7 \text{ is wrong} ¦ 7\text{ (wrong)} ¦ 7 is not the answer ¦ -7 ¦ \pm 7 ¦ \mp 7 ¦ 7i ¦ 7! ¦ 7^2 ¦ \sqrt{7} ¦ 1/7
7/8 ¦ 7\%\text{ or }8\% ¦ 7_8 ¦ 10_7 ¦ 111_2 ¦ 7x ¦ 7+C ¦ 7+0x+y ¦ 7 \cup 8 ¦ 7 \cap 8 ¦ 7 \vee 8 ¦ 7 \oplus 8 ¦ 8
$7$ or $8$ ¦ $8$ or $7$ ¦ $7$, $8$ ¦ $7$ $8$ ¦ $8$; $7$ ¦ It is $8$ or $7$ ¦ It is $7$ or $8$ ¦ It cannot be $7$.
It isn't $7$. ¦ not $7$ ¦ $7$ is wrong ¦ $7$ is incorrect. ¦ The answer is not $7$. ¦ The answer isn't $7$
The answer is $7$ or $8$. ¦ The answer is $8$ or $7$. ¦ The answer is $7$ and $8$. ¦ The answer is $7$/$8$
The answer is more than $7$. ¦ The answer is at most less than $7$. ¦ The answer is $>7$.
The answer is $7$. No, $8$. ¦ \boxed{7} or \boxed{8} ¦ \boxed{8} or \boxed{7} ¦ \boxed{8}, \boxed{7}
\boxed{7}, \boxed{8} ¦ \boxed{8}\boxed{7} ¦ \boxed{7} is wrong ¦ not \boxed{7} ¦ \boxed{\text{not } 7}
\boxed{7, 8} ¦ \boxed{7 \text{ or } 8} ¦ \boxed{6=7} ¦ \boxed{x>7} ¦ \boxed{>7} ¦ <answer>7 or 8</answer>
{"answer": "7 or 8"} ¦ {"answer": "not 7"} ¦ {"answer": [7, 8]}
""",
    ),
]

FOUR = {"answer": "C", "options": 4}
CITIES = {"answer": "C", "options": ["Rome", "London", "Paris", "New Paris"]}

ON_PURPOSE: dict[str, list[tuple[str, Gold, str]]] = {
    "one answer is given, however unsure": [
        (
            "number",
            "42",
            "42? ¦ about 42 ¦ approximately 42 ¦ ~42 ¦ ≈42 ¦ roughly 42 ¦ 42ish ¦ 42-ish ¦ 42 or so many others",
        ),
        ("number", "42", r"\boxed{42?} ¦ \boxed{\sim 42} ¦ Maybe 42 ¦ I think it is 42 ¦ no, 42"),
        ("choice", FOUR, r"C? ¦ \boxed{\sim C} ¦ None of the above (C)"),
        ("text", "Paris", "Paris? ¦ Paris (?) ¦ Paris! ¦ ! Paris"),
    ],
    "the bound holds the number itself": [
        (
            "number",
            "42",
            "at least 42 ¦ at most 42 ¦ up to 42 ¦ 42 or more ¦ 42 or less ¦ 42+ ¦ 42 minimum ¦ 42 and above",
        ),
    ],
    "the right answer asks for no unit": [
        (
            "number",
            "42",
            "42% ¦ 42 percent ¦ 42 km ¦ 42 apples ¦ 42K ¦ 42 dozen ¦ $42 ¦ €42 ¦ 42 cents ¦ 42 °C ¦ 42nd ¦ 42 more",
        ),
        ("math", "5", r"5% ¦ 5 apples ¦ 5\text{ cm} ¦ 5^\circ"),
    ],
    "the last answer of several in their own places counts, as a correction would": [
        (
            "number",
            "42",
            '<answer>43</answer> so <answer>42</answer> ¦ {"answer": 43} {"answer": 42} ¦ Answer: 43⏎Answer: 42',
        ),
        (
            "number",
            "42",
            "First answer: 43. Second answer: 42. ¦ 43, no, 42 ¦ if not 43, then 42 ¦ 43 → 42 ¦ first 43 then 42",
        ),
        ("choice", FOUR, 'Answer: B⏎Answer: C ¦ I pick B. I pick C. ¦ {"answer": "C", "alternative": "B"}'),
        ("text", "Paris", "Answer: London⏎Answer: Paris"),
    ],
    "what leads to the answer is not checked, nor what a left side is": [
        ("math", "5", "x^2=5 ¦ 2x=5 ¦ x+1=5 ¦ f(4)=5 ¦ -x=5"),
        ("number", "42", "2+2=42"),
        ("math", "x+1", "y=x+1"),
        ("math", "y=2x+1", "z=2x+1"),
        ("choice", CITIES, "Paris, since that is the capital ¦ Paris is too easy, so not it"),
    ],
    "it is the same value": [
        ("number", "42", "(42) ¦ 42/1 ¦ 84/2 ¦ |42| ¦ ⌊42⌋ ¦ 42 42 ¦ 42 = 42 ¦ 42e0 ¦ --42 ¦ =42 ¦ 42.000"),
        ("math", "5", r"5=5 ¦ |-5| ¦ 5 \pm 0 ¦ (5) ¦ [5] ¦ {5}"),
        ("math", "1/2", "50% ¦ 2^{-1}"),
        ("math", r"\sqrt{2}", "1.41421356"),
        ("math", "x+1", r"x+1+0y ¦ X+1 ¦ \{x+1\}"),
    ],
    "brackets that the answer or the right one lacks are not asked for": [
        ("math", "(1,2)", "1,2 ¦ x=1, y=2 ¦ 1 and 2"),
        ("math", "1,2", "(1,2) ¦ (2,1)"),
        ("math", "10_2", "10"),
    ],
    "case, articles and punctuation, as SQuAD has it": [
        ("text", "Paris", """PARIS ¦ P.a.r.i.s ¦ a Paris ¦ Paris... ¦ "Paris" ¦ 'Paris' ¦ $Paris$ ¦ Paris/"""),
        ("text", "it's", "its"),
        ("text", "U.S.", "us ¦ U.S ¦ US"),
    ],
}

HONEST: list[tuple[str, Gold, str]] = [
    (
        "number",
        "42",
        r"""
42 ¦ 42. ¦ 42.0 ¦ **42** ¦ $42$ ¦ \boxed{42} ¦ $\boxed{42}$ ¦ #### 42 ¦ The answer is 42. ¦ The answer is **42**.
The answer is 42, not 43. ¦ It is 42, not 41. ¦ 42, not 43 ¦ 42 rather than 43 ¦ Not 41 but 42 ¦ It isn't 41, it's 42
The answer is 42 because 6 * 7 = 42. ¦ 6 * 7 = 42 ¦ x = 42 ¦ x = 6 * 7 = 42 ¦ 42 = 6 * 7 ¦ So x = 42. ¦ => 42 ¦ → 42
There is no doubt that the answer is 42. ¦ Without a doubt, the answer is 42. ¦ The answer can be nothing but 42.
The answer is none other than 42. ¦ It cannot be anything other than 42. ¦ I'm not sure, but the answer is 42.
I am not certain, but I believe the answer is 42. ¦ 41 is wrong. The answer is 42.
First I thought 41, but that is wrong; the answer is 42. ¦ The answer is 41. Wait, I was wrong: the answer is 42.
Since 41 < 42 < 43, the answer is 42. ¦ As x > 41, the smallest integer is 42.
We need at least 42. ¦ They will need 42 more. ¦ 42 (6 × 7) ¦ 42 (forty-two) ¦ 42 (i.e. 42.0) ¦ 42 or 42.0
42, i.e. 42.0
The answer is 42 (see above). ¦ The answer is 42, since 43 is too large. ¦ The answer is 42, as 43 would be too many.
Answer: 42 ¦ Final answer: 42 ¦ **Final Answer:** 42 ¦ ANSWER: 42 ¦ Answer:⏎42 ¦ The final answer is: $\boxed{42}$.
The total is 3 × 14 = 42 apples. ¦ He pays $30 + $12 = $42. ¦ Between 40 and 44 lies the mean, 42.
From 10 to 52 there are 52 - 10 = 42 steps. ¦ The answer is \boxed{42}, not \boxed{43} ¦ \boxed{42} \boxed{42}
{"answer": 42} ¦ {"answer": "42"} ¦ {"reasoning": "not 41", "answer": "42"} ¦ <answer>42</answer>
<answer> 42 </answer>
<think>maybe 41 or 43</think>42 ¦ <think>not 42?</think>The answer is 42. ¦ ~~41~~ 42 ¦ ```⏎42⏎``` ¦ 42 😀
In total, 42 ¦ 42 in total ¦ 42 people ¦ There are 42 of them.
Rounding 41.7 gives 42. ¦ 41.98 ≈ 42 ¦ 41.98 is about 42. ¦ In 1999, 42 people came.
""",
    ),
    (
        "number",
        "0.25",
        "0.25 ¦ 1/4 ¦ 25% ¦ 1/4 = 0.25 ¦ 1/4 (0.25) ¦ 0.25 (25%) ¦ 1/4, or 0.25 ¦ 1/4 or 0.25 ¦ 0.25, i.e. 25%",
    ),
    (
        "number",
        "1800",
        "9 * 200 = <<9*200=1800>>1800⏎#### 1,800 ¦ 18 hundred ¦ 1.8 thousand ¦ 1,800 ¦ $1,800 ¦ 1800.00",
    ),
    ("number", "-5", "-5 ¦ −5 ¦ minus 5 ¦ negative 5 ¦ x = -5 ¦ 3 - 8 = -5 ¦ The answer is -5, not 5."),
    (
        "choice",
        FOUR,
        r"""
C ¦ c ¦ (C) ¦ C. ¦ **C** ¦ C) Paris ¦ C: Paris ¦ C. Paris ¦ C - Paris ¦ The answer is C. ¦ The answer is (C).
Answer: C
The answer is C. No, because the owner acted in self-defense. ¦ The answer is (C) False, True ¦ The answer is C. False
The answer is **C. Not until 1990.** ¦ The answer is C. Wrong side of the road ¦ Answer: C. Never ¦ C) No, it is not
The answer is (C): No, since it was unforeseeable. ¦ Answer: C. Both A and B ¦ The answer is C. None of the above
The answer is C, not D. ¦ A is wrong, so the answer is C.
The answer is C because A and B are wrong. ¦ The answer is C because option A is not possible. ¦ It is C.
A, B and D can be ruled out. The answer is C.
I first thought B, but the correct answer is C. ¦ The answer is B. Wait, I was wrong: the answer is C.
There is no doubt: the answer is C. ¦ Without any doubt the answer is C.
I don't know for sure, but the answer is C. ¦ The answer is C, though I am not certain. ¦ The answer is C, I think.
The answer is C. No other option fits. ¦ The answer is C; no further work is needed.
I choose C. ¦ I would go with C. ¦ My choice is C. ¦ Option C ¦ Option C is correct. ¦ The correct option is C.
C is correct. ¦ C is the right answer. ¦ (C) is the best answer. ¦ So the answer is C ¦ C!! ¦ "C"
\boxed{C} ¦ $\boxed{\text{C}}$ ¦ \boxed{C}. ¦ \boxed{(C)} ¦ The answer is \boxed{C}, not \boxed{D} ¦ \boxed{C}\boxed{C}
{"answer": "C"} ¦ <answer>C</answer> ¦ ```⏎C⏎``` ¦ The answer is⏎⏎C ¦ Reasoning: not A.⏎⏎Answer: C ¦ ~~B~~ C
Which is not true? The statement that is not true is (C). ¦ The statement that is false is (C).
The best answer is C. A and B are partly right. ¦ The answer is C, which is worse than D in one respect only.
""",
    ),
    (
        "choice",
        FOUR,
        r"""
Answer C ¦ C) ¦ **C** ¦ The answer is C because A contradicts the premise. ¦ I choose option c
\boxed{\text{C}} ¦ (C)⏎⏎Explanation: option (A) fails since 3 > 2; (C) and (D) too. ¦ Thus, C ¦ Hence (C) ¦ So C
So, C. ¦ So it's C. ¦ Answer C. ¦ answer c ¦ answer (c) ¦ Ans: C ¦ Ans. C ¦ ans C ¦ Correct answer C
Correct: C ¦ Option C ¦ option c ¦ Option (C). ¦ choice C ¦ Choice (c) ¦ C is right. ¦ C is the answer
C it is. ¦ It must be C. ¦ It has to be C ¦ It should be C. ¦ must be C ¦ C, because the others are too small.
C because A is wrong ¦ C - Paris ¦ C – Paris ¦ C — since A fails. ¦ C: Paris. A is wrong because of X.
c) paris ¦ [C] ¦ {C} ¦ <C> ¦ "C" ¦ `C` ¦ *C* ¦ __C__ ¦ $C$ ¦ $\text{C}$ ¦ \(C\) ¦ \textbf{C} ¦ $\mathbf{C}$ ¦ C!
C, ¦ C; ¦ C :) ¦ The letter is C. ¦ Letter C ¦ My answer: C ¦ My pick is C ¦ My choice is C. ¦ I'd say C.
I would say C ¦ I'll go with C. ¦ I think C ¦ I think it's C. ¦ I believe the answer to be C. ¦ I guess C
Probably C. ¦ Going with C. ¦ Final: C ¦ Final answer C ¦ FINAL ANSWER: (C) ¦ Final Choice: C ¦ Solution: C
Result: C ¦ Conclusion: C ¦ Conclusion: the answer must be (C). ¦ Selected option: C ¦ The correct one is C.
The best option is C. ¦ The best choice would be C. ¦ The right option: C ¦ The answer would be C.
The answer should be C. ¦ The answer has to be C. ¦ The answer must be C, as A is false. ¦ The answer → C
Answer → C ¦ => C ¦ -> C ¦ → C ¦ ∴ C ¦ Answer = C ¦ Answer - C ¦ Answer – C ¦ Answer: option C
Answer: Option (C) Paris ¦ Answer: letter C ¦ Answer: [C] ¦ Answer:C ¦ Answer is C ¦ A: C ¦ #### C
### Answer⏎C ¦ ## Answer: C ¦ **Answer: C** ¦ **Answer:** (C) Paris ¦ **C) Paris** ¦ **C. Paris** ¦ **C.** Paris
**Option C** ¦ The correct answer is **C) Paris**. ¦ The correct answer is option C, Paris. ¦ ✅ C ¦ C ✅ ¦ C ✓
✔ C ¦ 👉 C ¦ (c) ¦ c. ¦ c ¦ The answer is c. ¦ The answer is (c) Paris. ¦ Option c) Paris ¦ Die Antwort ist C.
Antwort: C ¦ Die richtige Antwort ist C ¦ Antwort C ¦ La réponse est C. ¦ Réponse : C
La bonne réponse est la C. ¦ La respuesta es C. ¦ Respuesta: C ¦ La respuesta correcta es la C. ¦ A resposta é C
Resposta: C ¦ La risposta è C. ¦ Risposta: C ¦ Ответ: C ¦ Правильный ответ: C ¦ Het antwoord is C.
Odpowiedź: C ¦ Cevap: C ¦ Svar: C ¦ 答案是C ¦ 答案是 C。 ¦ 答案：C ¦ 选C ¦ 选 C。 ¦ 選C ¦ 正确答案是C ¦ 故选C
故选：C ¦ 所以选C。 ¦ 答えはC ¦ 答えはCです。 ¦ 正解はCです。 ¦ 正解: C ¦ C です ¦ 정답: C ¦ 정답은 C입니다.
답은 C ¦ उत्तर: C ¦ الإجابة: C ¦ الجواب هو C ¦ Đáp án: C ¦ Đáp án C ¦ Đáp án là C. ¦ Jawaban: C
Jawabannya adalah C. ¦ (C) is correct. ¦ (C) is the correct answer because (A) and (C) are wrong.
Option C is the best answer; A, C and D are distractors. ¦ Eliminating A, C and D leaves C.
A, C and D are wrong, so C. ¦ After elimination, only C remains. ¦ Only C works. ¦ The only option left is C.
That leaves C. ¦ This matches option C. ¦ This corresponds to (C). ¦ which is option C ¦ which is choice (C).
Thus the statement in C is true. ¦ Step 1: ...⏎Step 2: ...⏎C ¦ Let me think.⏎⏎Therefore, the answer is:⏎⏎C
The correct answer is:⏎⏎**C) Paris**⏎⏎A is too small, C and D are too large.
**Answer: C**⏎⏎Explanation: A is wrong because ... C and D are irrelevant.
C⏎⏎Explanation: A is the capital of Germany. C is a river. D is a lake.
C. Paris⏎⏎A is wrong as Berlin is in Germany. ¦ (C) Paris⏎(A) is wrong.⏎(C) is wrong.
Correct option: C⏎Why not A? It is too small. ¦ Option C.⏎⏎Reason: Option A is wrong since it is small.
C<|im_end|> ¦ C</s> ¦ The answer is C.<|eot_id|> ¦ (C)<|endoftext|> ¦ {"choice": "C"} ¦ {"answer": "c"}
{"letter": "C", "reason": "A is wrong"} ¦ {"option": "C"} ¦ {"final_answer": "C"} ¦ <answer>C</answer>
<answer>(c) Paris</answer> ¦ <choice>C</choice> ¦ <final>C</final> ¦ \boxed{C} ¦ \boxed{(C)} ¦ \boxed{C.}
\boxed{\textbf{(C)}} ¦ \boxed{\mathrm{C}} ¦ \boxed{C) Paris} ¦ \boxed{\text{Option C}} ¦ $\boxed{C}$.
\boxed{c} ¦ Okay, so the answer is: C ¦ Based on the passage, the best answer is C.
I am confident that the answer is (C). ¦ Looking at the options, C fits best.
Of the four options, only (C) is consistent with the text. ¦ The right choice here is C! ¦ C is my answer.
My final answer is C. ¦ FINAL: C ¦ **Final answer: (C)** ¦ **Correct answer: C** ¦ The correct answer: C) Paris
Correct choice: **C** ¦ Right answer: C ¦ The answer: C. ¦ Answer is (C) ¦ Answer: (c) ¦ Answer: c.
Answer: **C** – Paris ¦ Answer⏎C ¦ Answer:⏎(C) Paris ¦ > C ¦ - C ¦ * C ¦ C ✔️ ¦ ✓ C ¦ Choice: C ¦ Your answer: C
Option: C ¦ Option C, Paris. ¦ Option C because it is the only river. ¦ Opt. C
C) because the others are rivers ¦ (C), since A contradicts the text ¦ C, as stated in line 3. ¦ C (Paris)
C = Paris ¦ So, the answer must be option C. ¦ Therefore, option C is the correct answer.
Therefore, the correct option is (C) Paris. ¦ Hence, C is correct. ¦ Hence the answer is C
Thus the correct choice is: C ¦ Thus (C). ¦ Which gives us answer choice C. ¦ This means the answer is C.
The answer, then, is C. ¦ The answer is clearly C. ¦ The answer is obviously (C). ¦ The answer is most likely C.
The answer is therefore C. ¦ It's (C). ¦ It is option C. ¦ It's definitely C. ¦ I'm going with C.
I'd go for C. ¦ I pick (C). ¦ I select option (C). ¦ I would answer C. ¦ I'd choose (C).
I think the answer is C ¦ I think (C). ¦ I believe it's C. ¦ We choose C. ¦ We get C. ¦ Let's go with C.
Go with C. ¦ Choose C. ¦ Pick C ¦ Select C. ¦ Mark C. ¦ Verdict: C ¦ Decision: C ¦ Response: C
Conclusion: option C. ¦ Final decision: C ¦ Lösung: C ¦ Option C ist richtig. ¦ Die korrekte Antwort lautet C.
La réponse correcte est C. ¦ Je choisis C. ¦ La opción correcta es C. ¦ La respuesta correcta es: c)
La alternativa correcta es C ¦ A alternativa correta é C. ¦ Alternativa C ¦ La risposta corretta è la C.
Правильный ответ — C. ¦ Ответ C ¦ Верный ответ: C. ¦ 答案选C ¦ 答案选择 C。 ¦ 正确选项是C ¦ 正确的选项是：C
应该选C。 ¦ 因此答案是C。 ¦ 所以，答案是 C ¦ 我选C ¦ 答えは C である。 ¦ 正解は C。 ¦ したがって、答えはCです。
답: C ¦ 답은 C입니다. ¦ 정답은 C ¦ Odpowiedź C ¦ Prawidłowa odpowiedź: C ¦ Doğru cevap: C ¦ Rätt svar: C
Oikea vastaus: C ¦ Správná odpověď: C ¦ Đáp án đúng là C. ¦ Jawaban yang benar adalah C. ¦ सही उत्तर: C
सही उत्तर C है। ¦ الإجابة الصحيحة هي C ¦ Η σωστή απάντηση είναι C ¦ התשובה הנכונה היא C ¦ {"answer": "C) Paris"}
{"Answer": "C"} ¦ {"answer_letter": "C"} ¦ {"selected_option": "C"} ¦ {"choice": "C", "confidence": 0.9}
<final_answer>C</final_answer> ¦ <answer>C</answer>⏎⏎Because A is wrong. ¦ [[C]] ¦ \boxed{C} is the answer.
$$\boxed{\text{C}}$$ ¦ The final answer is $\boxed{\mathbf{C}}$. ¦ \boxed{\text{C. Paris}}
Final Answer: The final answer is $\boxed{C}$. I hope it is correct. ¦ C⏎⏎A is too small, B is too large.
C⏎⏎Reasoning: Option A is a river, option B is a lake.
(C) Paris⏎⏎Explanation: (A) Rome is in Italy, (B) London is in England.
**C. Paris**⏎⏎- A: Rome is in Italy⏎- B: London is in England
Answer: C⏎⏎Explanation: (A) is wrong because 3 > 2. ¦ Option C⏎A is wrong⏎B is wrong
The answer is C.⏎⏎Question: What is the capital of Italy?⏎A. Rome⏎B. Oslo⏎Answer: A ¦ C<|endoftext|>
The answer is (C).</s> ¦ The answer that fits is C. ¦ Our answer: C ¦ Result → C ¦ So the correct letter is C.
Answer choice C ¦ Answer choice (C) is correct. ¦ Answer option C. ¦ Correct answer is option (C).
The correct response is C. ¦ Correct response: C ¦ The best response is (C). ¦ The appropriate choice is C.
My guess is C. ¦ My best guess: C ¦ Best guess: C. ¦ Hence option C. ¦ Hence, the correct option is C.
Therefore C is the answer. ¦ Thus C is correct. ¦ Thus, option (C) is right. ¦ So (C) is the answer.
so the answer is c ¦ so c ¦ it's c ¦ c is correct ¦ (c) Paris ¦ c: Paris ¦ **c** ¦ C -- Paris ¦ C, Paris
C. Paris is the capital. ¦ C) Paris. ¦ C: Paris ¦ (C): Paris ¦ [C] Paris ¦ Option C: Paris
Option (C): Paris, because it is the capital. ¦ Letter C. ¦ The letter is C ¦ Choice C. ¦ Choice (C).
The choice is C. ¦ The option is (C) ¦ The final answer is option C. ¦ The final answer is: (C) Paris
The final choice is C. ¦ Selected answer: C ¦ Chosen option: C ¦ Chosen answer: (C) ¦ Predicted answer: C
Prediction: C ¦ Key: C ¦ Ans - C ¦ Ans = C ¦ ANS: (C) ¦ Solution: option C ¦ Solution: (C) Paris
A, B and D do not fit, which leaves C. ¦ Since A, B and D are false, C is true.
We can rule out A, B and D. So C. ¦ By elimination, C. ¦ By process of elimination, the answer is C. ¦ Ergo, C.
Consequently, C is the right answer. ¦ As a result, the answer is C. ¦ To sum up: C
In summary, the answer is C. ¦ In conclusion, (C). ¦ In short: C. ¦ Final thought: C ¦ Die Lösung ist C.
Richtig ist C. ¦ Die Antwort: C ¦ La bonne réponse : C ¦ C'est la réponse C. ¦ La respuesta es la opción C.
Es la C. ¦ Letra C ¦ È la C. ¦ La risposta giusta è C. ¦ Ответ: (C) ¦ Правильный вариант C. ¦ 正确答案：C
正确答案为C。 ¦ 答案：(C) ¦ 故答案为C ¦ 因此选择C。 ¦ 選項C ¦ 答えは(C)です ¦ 正答：C ¦ 정답: (C)
정답은 C번입니다. ¦ Odpowiedź to C. ¦ Cevap C. ¦ Đáp án: C. ¦ Jawaban: C. ¦ Đáp án C là đúng.
{"answer": "Option C"} ¦ {"final_answer": "(C)"} ¦ {"reasoning": "A is wrong, B is wrong", "answer": "C"}
{'answer': 'C'} ¦ <answer>Option C</answer> ¦ <answer> c </answer> ¦ $\boxed{C}$ is the correct answer.
\boxed{(C) Paris} ¦ \(\boxed{C}\) ¦ \[\boxed{C}\] ¦ The answer is: **C** ¦ The answer is **(C) Paris**.
The correct answer is **C**, because A is a river. ¦ The correct answer is C: Paris.
The correct answer is C (Paris). ¦ The correct answer is "C". ¦ C⏎Because A and B are rivers.
C.⏎⏎Option A is a river. Option B is a lake. Option D is a sea. ¦ (C)⏎A, B, D are wrong because they are rivers.
Answer: C⏎A and B are rivers, D is a sea. ¦ **C**⏎⏎**Explanation:** A is not a city.
Answer: (C) Paris⏎Explanation: Options A, B and D are incorrect. ¦ C<|im_end|>⏎<|im_start|>user⏎A
I'm fairly sure it's C. ¦ I am certain the answer is C. ¦ The only correct option is C.
The one that works is C. ¦ The statement that holds is C. ¦ Answer:- C ¦ Ans :- (C) ¦ Answer: 'C' ¦ Answer: "C"
Answer is: **C**. ¦ Answer - (C) Paris ¦ The answer is option (C): Paris. ¦ the correct answer is c
correct option: c ¦ Correct Answer : C ¦ Correct Option: (C) Paris ¦ CORRECT ANSWER: C
The correct option would be C. ¦ The best fit is C. ¦ The closest match is C. ¦ Hence, (C) must be correct.
Hence, the answer must be C, since A is false. ¦ Then C. ¦ Thus we choose C. ¦ Thus our answer is (C).
So we pick option C. ¦ So the final answer is C! ¦ That would be C. ¦ That's C. ¦ This is option C.
It would be C. ¦ The result matches option C. ¦ This agrees with (C). ¦ Therefore the answer choice is C.
Which is (C). ¦ My vote is C. ¦ My selection: C ¦ Selection: C ¦ Option selected: C ¦ Pick: C ¦ Output: C
C.) Paris ¦ C / Paris ¦ C | Paris ¦ "C) Paris" ¦ **C**: Paris ¦ __C__ Paris ¦ Die richtige Lösung ist C.
Ich wähle C. ¦ Option C wäre richtig. ¦ La lettre C. ¦ Je dirais C. ¦ La correcta es C. ¦ Elijo la opción C.
Resposta correta: C ¦ Escolho C. ¦ Scelgo C. ¦ Правильно: C ¦ Выбираю C. ¦ 故本题选C。 ¦ 本题答案为C ¦ 选择：C
答えはC。 ¦ 選択肢C ¦ 正解はCである。 ¦ 답은 C다. ¦ Chọn C. ¦ Pilihan C. ¦ \textbf{Answer: C} ¦ **Answer**: C
*Answer*: C ¦ ### Final Answer: C ¦ ### Answer: (C) Paris ¦ Final Answer:⏎⏎C ¦ Answer:⏎⏎**C. Paris**
C⏎⏎The capital of France is Paris, so A and D are out.
Therefore, the answer is (C).⏎⏎Note that (A) would need x > 3.
Option C is correct.⏎⏎Option A is a lake.⏎Option B is a river.
""",
    ),
    (
        "choice",
        CITIES,
        "Paris ¦ The answer is Paris. ¦ Paris. ¦ Paris, the capital of France ¦ **Paris** ¦ (C) Paris ¦ Answer: Paris",
    ),
    (
        "text",
        "Paris",
        r"""
Paris ¦ paris ¦ Paris. ¦ **Paris** ¦ _Paris_ ¦ `Paris` ¦ "Paris" ¦ (Paris) ¦ - Paris ¦ # Paris ¦ > Paris
$Paris$ ¦ the Paris
The answer is Paris. ¦ Answer: Paris ¦ **Answer:** Paris ¦ The answer is **Paris**. ¦ \boxed{\text{Paris}}
\boxed{Paris}
{"answer": "Paris"} ¦ <answer>Paris</answer>
""",
    ),
    ("text", "C++", "C++ ¦ c++ ¦ `C++` ¦ The answer is C++. ¦ Answer: C++"),
    ("text", "[1, 2]", "[1, 2] ¦ [1,2] ¦ [ 1, 2 ] ¦ `[1, 2]` ¦ '[1, 2]'"),
    ("text", "-1", '-1 ¦ −1 ¦ "-1" ¦ The answer is -1.'),
    ("text", "1,234", "1234 ¦ 1,234"),
    ("text", "well-known", "well-known ¦ wellknown ¦ Well-known."),
    ("text", "'a'", """a ¦ 'a' ¦ "a" """),
    ("text", "'  R'", """'  R' ¦ "  R" ¦ {"answer": "  R"} ¦ {"answer": "'  R'"}"""),
    ("text", "{'a': 1, 'b': (2,)}", """{"a": 1, "b": (2,)} ¦ {'b':(2,), 'a':1} ¦ {"answer": "{'a': 1, 'b': (2,)}"}"""),
    ("text", ["$5", "5 dollars"], "$5 ¦ $ 5 ¦ 5 dollars ¦ 5 Dollars."),
    (
        "math",
        "5",
        r"""
5 ¦ $5$ ¦ \boxed{5} ¦ x=5 ¦ $x = 5$ ¦ x=2+3=5 ¦ 2+3=5 ¦ The answer is $5$. ¦ The answer is $5$, not $6$. ¦ 5.0
\frac{10}{2}
The answer is 5 ¦ \boxed{x=5} ¦ \boxed{5} \boxed{5} ¦ No doubt the answer is $5$. ¦ \sqrt{25} = 5 ¦ |{-5}| = 5
""",
    ),
    ("math", "(1,2)", r"(1,2) ¦ (1, 2) ¦ \left(1,2\right) ¦ (x,y)=(1,2) ¦ \boxed{(1,2)} ¦ The answer is $(1,2)$."),
    (
        "math",
        r"\{1,2\}",
        (
            r"\{1,2\} ¦ \{2,1\} ¦ {1, 2} ¦ 1, 2 ¦ 1 and 2 ¦ x = 1 or x = 2 ¦ The answer is $1$ and $2$. ¦ "
            r"\boxed{1}, \boxed{2}"
        ),
    ),
    (
        "math",
        "x^2-1",
        r"x^2-1 ¦ (x-1)(x+1) ¦ (x-1)(x+1) = x^2-1 ¦ y = x^2-1 ¦ f(x) = x^2 - 1 ¦ -1+x^2 ¦ x^2-1=(x+1)(x-1)",
    ),
    ("math", "1010_2", r"1010_2 ¦ 1010_{2} ¦ $1010_2$"),
]


def answers(block: str) -> list[str]:
    """Return the answers in a block of them."""
    apart = [one.strip() for line in block.strip().split("\n") for one in line.split("¦")]
    return [one.replace("⏎", "\n") for one in apart]


async def marked(kind: str, gold: Gold, block: str) -> dict[str, GradeMark]:
    """Grade each answer of a block."""
    check = build_grader(kind, {"answer": gold} if not isinstance(gold, Mapping) else gold, GraderTools(), "here")
    return {answer: (await check.grade(answer)).mark for answer in answers(block)}


@pytest.mark.parametrize(("kind", "gold", "block"), HOSTILE)
async def test_what_does_not_answer_is_not_graded_right(kind: str, gold: Gold, block: str) -> None:
    found = await marked(kind, gold, block)
    assert [answer for answer, mark in found.items() if mark is GradeMark.RIGHT] == []
    assert GradeMark.UNGRADED not in found.values()


@pytest.mark.parametrize(("kind", "gold", "block"), HONEST)
async def test_honest_answers_stay_right(kind: str, gold: Gold, block: str) -> None:
    assert [answer for answer, mark in (await marked(kind, gold, block)).items() if mark is not GradeMark.RIGHT] == []


@pytest.mark.parametrize("reason", ON_PURPOSE)
async def test_what_is_graded_right_on_purpose_is_so_and_the_documentation_says_why(reason: str) -> None:
    for kind, gold, block in ON_PURPOSE[reason]:
        found = await marked(kind, gold, block)
        assert [answer for answer, mark in found.items() if mark is not GradeMark.RIGHT] == []
    documented = " ".join((ROOT / "docs" / "results" / "graders.md").read_text().split())
    assert reason in documented.replace("**", "")


@pytest.mark.parametrize("kind", ["number", "choice", "text", "math"])
def test_there_are_enough_of_each(kind: str) -> None:
    assert sum(len(answers(block)) for each, _, block in HOSTILE if each == kind) >= 100


@pytest.mark.parametrize("denied", ["not 42", "> 42", "42 is wrong", "42 or 43", "between 41 and 42"])
def test_workers_do_not_agree_by_a_number_that_one_of_them_denies(denied: str) -> None:
    assert canonicalize(denied, AnswerForm.NUMBER) is None
    assert canonicalize("42", AnswerForm.NUMBER) == "42"
