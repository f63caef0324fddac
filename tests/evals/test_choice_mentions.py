"""Everyday forms of choosing C of four options, and of choosing none; written before the rules saw them.

Forms are parted by ¦; ⏎ is a line end. A few are read as no choice, which is the safe side; none is read as another
letter.
"""

from shikisha.evals.graders import GradeMark, GraderTools
from shikisha.evals.graders.canonical_form import extract_choice
from shikisha.evals.graders.choice import ChoiceSettings, build_choice_grader

CHOSEN = r"""
C ¦ (C) ¦ [C] ¦ C) ¦ C. ¦ C: ¦ *C* ¦ **C** ¦ `C` ¦ c ¦ c. ¦ (c) ¦ Option C ¦ option c ¦ Choice C ¦ C — Paris
C - Paris ¦ C. Paris ¦ C) Paris ¦ (C) Paris ¦ C: Paris ¦ C, Paris. ¦ > C ¦ - C ¦ • C ¦ => C ¦ -> C ¦ → C ¦ ### C
Ans: C ¦ Ans. C ¦ ans = C ¦ A: C ¦ ANSWER: C ¦ ANSWER = C ¦ Answer - C ¦ Answer – (C) ¦ Final: C ¦ Result: C
Verdict: C ¦ Conclusion: C ¦ Pick: C ¦ My pick: C ¦ Selection: C ¦ Vote: C ¦ Guess: C ¦ Best guess: C ¦ Solution: C
Key: C ¦ Response: C ¦ Output: C ¦ Decision: (C) ¦ Answer:⏎C ¦ Answer:⏎⏎C ¦ **Answer**⏎⏎C ¦ ## Answer⏎C
### Final answer⏎(C) Paris ¦ Final answer⏎---⏎C ¦ **Final Answer:**⏎⏎**C** ¦ The answer is:⏎⏎C) Paris
The correct option:⏎**C. Paris** ¦ It's C. ¦ It is C. ¦ That's C. ¦ That would be C. ¦ That is option C.
This is C. ¦ This would be (C). ¦ Must be C. ¦ It must be C. ¦ It has to be C. ¦ It can only be C.
It should be C. ¦ Should be C. ¦ Definitely C. ¦ Clearly C. ¦ Obviously, C. ¦ Probably C. ¦ Most likely C.
Likely C. ¦ Surely C. ¦ Easy: C. ¦ Simple. C. ¦ Sure! C. ¦ Sure, the answer is C. ¦ Okay, C. ¦ Yes, C. ¦ Hmm, C.
Well, C I think. ¦ C, I think. ¦ C, I believe. ¦ C for sure. ¦ C, definitely. ¦ C it is. ¦ C is it. ¦ C is right.
C is correct. ¦ C is the one. ¦ C is the answer. ¦ C is the right choice. ¦ C seems right. ¦ C looks right to me.
C appears correct. ¦ C makes the most sense. ¦ C fits best. ¦ C fits. ¦ C works. ¦ C holds. ¦ C wins.
C is best supported. ¦ C is the only one that works. ¦ C is the only option consistent with the data.
Only C works. ¦ Only C is true. ¦ Only C satisfies all conditions. ¦ Only option C survives. ¦ Just C.
I'd go with C. ¦ I would go for C. ¦ I'll go with option C. ¦ I go with C. ¦ Going with C. ¦ I'm going with (C).
I am going with C here. ¦ I'd say C. ¦ I would say it's C. ¦ I'd pick C. ¦ I pick C. ¦ I choose C.
I choose option (C). ¦ I've chosen C. ¦ I select C. ¦ I vote for C. ¦ My vote goes to C. ¦ I'd bet on C.
My money is on C. ¦ I lean toward C. ¦ I'm leaning towards C. ¦ I'd lean C. ¦ I think it's C.
I believe the answer is C. ¦ I'm confident it's C. ¦ I'm fairly sure that C is correct. ¦ I'd answer C.
I would answer with C. ¦ I'd mark C. ¦ Mark C. ¦ Choose C. ¦ Pick C. ¦ Select C. ¦ Go with C. ¦ Circle C.
Put down C. ¦ Let's go with C. ¦ Let me choose C. ¦ We choose C. ¦ We pick (C). ¦ We select option C.
We should choose C. ¦ We can conclude that C is correct. ¦ We conclude: C. ¦ We get C. ¦ We arrive at C.
We end up with C. ¦ We are left with C. ¦ This leaves C. ¦ This leaves us with C. ¦ That leaves only C.
Which leaves C. ¦ Leaving C. ¦ C remains. ¦ Only C remains. ¦ So C. ¦ So it's C. ¦ So the answer must be C.
So we have C. ¦ So we pick C. ¦ Thus C. ¦ Thus, C. ¦ Thus the answer is C. ¦ Thus, option C is correct. ¦ Hence C.
Hence, the answer is (C). ¦ Hence option C. ¦ Therefore C. ¦ Therefore, C. ¦ Therefore, (C) is the correct answer.
Therefore the correct choice is C. ¦ Ergo, C. ¦ Accordingly, C. ¦ Consequently, C is the answer.
In conclusion, C. ¦ In short, C. ¦ In summary, C is the best choice. ¦ Overall, C. ¦ All in all, C. ¦ To sum up: C.
TL;DR: C ¦ Bottom line: C. ¦ Long story short, C. ¦ As a result, the answer is C. ¦ For these reasons, C.
For that reason I choose C. ¦ Given this, C. ¦ Based on this, C is correct. ¦ Based on the above, the answer is C.
By elimination, C. ¦ By process of elimination, it's C. ¦ By exclusion: C. ¦ The answer's C. ¦ The answer is C
The answer is (C). ¦ The answer is C: Paris. ¦ The answer is option C. ¦ The answer is choice (C).
The answer is letter C. ¦ The answer is clearly C. ¦ The answer is most likely C. ¦ The answer is therefore C.
The answer is thus option C. ¦ The answer here is C. ¦ The answer would be C. ¦ The answer should be C.
The answer must be C. ¦ The answer has to be C. ¦ The answer comes out as C. ¦ The answer turns out to be C.
The answer to this question is C. ¦ The answer to the question is (C) Paris. ¦ The correct answer is C.
The correct answer is **C**. ¦ The correct answer is **C) Paris**. ¦ The correct answer would be option C.
The correct answer choice is C. ¦ The correct option is C. ¦ The correct letter is C. ¦ The correct statement is C.
The correct response is (C). ¦ The correct one is C. ¦ The right answer is C. ¦ The right one is C.
The right option would be C. ¦ The best answer is C. ¦ The best choice is C. ¦ The best option among these is C.
The best fit is C. ¦ The best match is (C). ¦ The closest answer is C. ¦ The closest option is C.
The closest match is C. ¦ The most accurate answer is C. ¦ The most appropriate option is C.
The most plausible choice is C. ¦ The most likely answer is C. ¦ The most reasonable option is (C).
The only correct option is C. ¦ The only possibility is C. ¦ The only valid choice is C. ¦ The only one left is C.
The only remaining option is C. ¦ The one that fits is C. ¦ The winner is C. ¦ The true statement is C.
The statement that holds is C. ¦ The matching option is C. ¦ The option that matches is C.
The option which best describes this is C. ¦ The choice that fits all the facts is C. ¦ My answer is C.
My answer: C ¦ My final answer is C. ¦ My choice is C. ¦ My choice: (C) ¦ My selection is C. ¦ My best guess is C.
My guess would be C. ¦ My conclusion is C. ¦ Our answer is C. ¦ Final answer: C ¦ Final answer is C.
Final Answer: The final answer is C ¦ Final choice: C ¦ Correct: C ¦ Correct answer: C) Paris ¦ Correct option: C.
Correct choice – C ¦ Right answer: (C) ¦ Best answer: C ¦ Best option: C. ¦ Most likely: C ¦ Chosen: C
Chosen answer: C ¦ Selected: C ¦ Selected option: C ¦ Letter: C ¦ Option: C ¦ Choice: C ¦ Option chosen: C
Answer choice: C ¦ Answer (C) ¦ Answer C ¦ Answer C. ¦ Answer is C ¦ Answer is: C ¦ Answer => C ¦ Answer → C
[Answer] C ¦ [[C]] ¦ <C> ¦ {C} ¦ "C" ¦ 'C' ¦ “C” ¦ The answer is 'C'. ¦ The answer is "C". ¦ The answer is [C].
The answer is \(C\). ¦ The answer is $C$. ¦ The answer is $\text{C}$. ¦ $\boxed{C}$ ¦ \boxed{\text{C}}
\boxed{\textbf{(C)}} ¦ \boxed{C. Paris} ¦ \(\boxed{\mathrm{C}}\) ¦ The answer is \textbf{C}. ¦ <b>C</b>
<answer>C</answer> ¦ <answer>(C) Paris</answer> ¦ {"answer": "C"} ¦ {"reasoning": "A is wrong", "answer": "C"}
```json⏎{"answer": "C"}⏎``` ¦ answer: c ¦ Answer: option C, Paris
Lyon is not the capital. Rome is in Italy. Bonn was. So Paris, i.e. C. ¦ France's capital is Paris, which is C.
France's capital is Paris, which is option C. ¦ France's capital is Paris (C).
France's capital is Paris (option C). ¦ The capital is Paris, so C. ¦ The capital is Paris, so the answer is C.
The capital is Paris, hence C. ¦ The capital is Paris -> C ¦ Paris, so I pick C. ¦ This corresponds to C.
This corresponds to option (C). ¦ This corresponds to answer choice C. ¦ This matches C. ¦ This matches option C.
This is consistent with C. ¦ This is what C says. ¦ This is described by C. ¦ That points to C.
That makes C the answer. ¦ That makes C correct. ¦ This makes option C the best choice. ¦ Which makes C right.
Which is C. ¦ That gives C. ¦ Which gives (C). ¦ Looking at the options, this is C.
Looking at the options, C is the one that matches. ¦ Comparing with the options, we get C.
Among the options, C is correct. ¦ Among the given choices, (C) is the best. ¦ Of these, C is the best.
Of the four, C is the closest. ¦ Out of these options, C. ¦ From the options, C.
Checking each option, only C agrees. ¦ A is wrong, B is wrong, D is wrong. C is right.
A: false⏎B: false⏎C: true⏎D: false ¦ A - incorrect⏎B - incorrect⏎C - correct⏎D - incorrect ¦ A ✗⏎B ✗⏎C ✓⏎D ✗
A) no⏎B) no⏎C) yes⏎D) no ¦ (A) Wrong. (B) Wrong. (C) Right. (D) Wrong. ¦ We can rule out A, B and D, so C.
A, B and D can be excluded, leaving C. ¦ Since A, B, and D are false, C must be true.
Neither A nor B nor D is right, so it is C. ¦ Not A, not B, not D; C. ¦ It's not A or B; D is too new. C.
Rather than A, the answer is C. ¦ The answer is C, not A. ¦ The answer is C, not B or D. ¦ C, not A.
C rather than D. ¦ C instead of A. ¦ It is C and not D. ¦ The answer is C (not A). ¦ Not B but C.
I first thought A, but it is C. ¦ At first I thought B. However, the answer is C.
Initially I'd say A, but on reflection C. ¦ Wait, no. It's C. ¦ A? No, C. ¦ Hmm, B... no, actually C.
Actually, C. ¦ Correction: C ¦ Scratch that, it's C. ¦ Sorry, I meant C. ¦ Let me correct myself: the answer is C.
On second thought, C. ¦ Answer: B⏎⏎Wait, that's wrong. Answer: C ¦ The answer is A. Actually, no: the answer is C.
The answer is B? No, the answer is C. ¦ C⏎⏎Explanation: Paris is the capital.
C⏎⏎A is wrong because Lyon is not the capital. ¦ C. Option A fails because it is not the capital.
(C)⏎Reason: B is in Italy. ¦ C because A is not a capital. ¦ C, because option B is in Italy and D in Germany.
C since B is in Italy. ¦ C, as D is in Germany. ¦ C: A and B do not fit. ¦ C - since A, B and D are not in France.
Answer: C⏎Explanation: Option A is tempting but wrong. ¦ Answer: C. (A and D are distractors.)
The answer is C because A, B and D are not capitals of France.
The answer is C. Option B would be the answer for Italy.
The answer is C. If the question were about Italy, the answer would be B.
**C**⏎⏎Why not A? Because Lyon is not the capital. ¦ Correct: C⏎Incorrect: A, B, D ¦ Right: C. Wrong: A, B, D.
I choose C over A. ¦ I prefer C to B. ¦ C beats A here. ¦ C is better than B. ¦ C is more plausible than A.
Between A and C, C is better. ¦ Between A and C, I'd choose C. ¦ Both A and C look good, but C is the better one.
A is close, but C is more accurate. ¦ Although A is plausible, C is correct.
While B is true in Italy, C is the answer. ¦ Unlike A, C fits. ¦ D is tempting; still, C.
It could be A, but C is more likely. ¦ the answer, then, is C ¦ And the answer is... C! ¦ Drum roll: C! ¦ C! ¦ C ✅
✅ C ¦ 👉 C ¦ 🅲 is hard to type, so: C ¦ Answer C is correct. ¦ Answer C fits best. ¦ Option C is the correct answer.
Option C is right. ¦ Option (C) it is. ¦ Option C seems best. ¦ Option C best describes it. ¦ Option C, then.
Choice C is the best. ¦ Choice (C) is correct. ¦ Statement C is correct. ¦ Statement C is the true one. ¦ Letter C.
The letter is C. ¦ The letter would be C. ¦ Letter C is my answer. ¦ Please mark C. ¦ You should choose C.
You would choose option C. ¦ One should pick C. ¦ Students should select C. ¦ The student should choose C.
The doctor should do C. ¦ I hope this helps! The answer is C. ¦ The answer is C. Hope that helps!
The answer is C. Let me know if you have questions. ¦ Answer: C (Paris). Confidence: 90% ¦ C (90% confident)
C, with high confidence ¦ Answer: C⏎Confidence: High ¦ Confidence: 0.9⏎Answer: C ¦ Q: capital? A: C ¦ 1. C
Question 1: C ¦ #1: C ¦ Q1. C ¦ 1) C ¦ La respuesta es C. ¦ Die Antwort ist C. ¦ La réponse est C.
La risposta corretta è C. ¦ A resposta é C. ¦ 答案是C ¦ 答案：C ¦ Réponse : C ¦ Antwort: C ¦ Respuesta: C
C is what I would choose. ¦ I'd settle on C. ¦ I'm settling for option C. ¦ I will choose C.
I will mark option (C). ¦ I'd put C. ¦ I would circle C. ¦ I'd tick C. ¦ Tick C. ¦ Check box C. ¦ Final pick -> C
final answer = C ¦ FINAL ANSWER: C ¦ Final answer (C) ¦ Final answer — C ¦ Answer, C. ¦ Answer... C
Answer: it's C ¦ Answer: I would go with C. ¦ Answer: The correct answer is C. ¦ Answer: Option (C) - Paris ¦ ans C
ANS:C ¦ Ans-C ¦ option: c ¦ opt. C ¦ C!! ¦ C :) ¦ C 🙂 ¦ It's (C)! ¦ it's c ¦ that'd be C ¦ That'd be option C.
Gotta be C. ¦ Has to be C. ¦ Can only be C. ¦ Must therefore be C. ¦ Should be option C, I think. ¦ I think C.
I think C is correct. ¦ I think C is the answer. ¦ I think option C fits. ¦ I guess C. ¦ I suppose it's C.
I suspect C. ¦ I reckon C. ¦ I'd guess C. ¦ I'd guess that it's C. ¦ I'd wager C. ¦ If I had to choose, C.
If I had to pick one, I'd pick C. ¦ If I must choose, it's C. ¦ When forced to choose, I'd say C. ¦ To me it's C.
In my opinion, C. ¦ In my view the answer is C. ¦ IMO C. ¦ Personally, I'd go with C.
As far as I can tell, it's C. ¦ After some thought, C. ¦ After consideration, I choose C.
After checking all options, C is correct. ¦ Having checked everything, I pick C. ¦ On balance, C.
All things considered, C. ¦ In the end, it's C. ¦ In the end I chose C. ¦ Ultimately, C.
Ultimately the answer is C. ¦ At the end of the day, C. ¦ So, in conclusion, the answer is C.
So my answer would be C. ¦ So the correct option is (C). ¦ So we can say C is right. ¦ So then C. ¦ Then it's C.
Then the answer is C. ¦ Now, the answer is C. ¦ It follows that C is correct. ¦ It follows that the answer is C.
It is clear that C is correct. ¦ It is evident that option C is right. ¦ It is obvious that the answer is C.
We see that C is true. ¦ We see that the answer is C. ¦ We find that C holds. ¦ We find the answer to be C.
One finds C. ¦ This shows that C is correct. ¦ This implies C. ¦ This implies that the answer is C. ¦ This means C.
This means that C is right. ¦ This suggests C. ¦ This suggests that C is the best answer.
This indicates option C. ¦ This supports C. ¦ This confirms C. ¦ This confirms that the answer is C.
This yields C. ¦ This results in C. ¦ This brings us to C. ¦ This agrees with option C. ¦ This is option C.
This is exactly option C. ¦ This is choice C. ¦ This equals option C. ¦ which is option C ¦ which corresponds to C
which matches choice (C) ¦ that is, C ¦ i.e., C ¦ namely C ¦ viz. C ¦ in other words, C. ¦ The answer: C
The answer - C. ¦ The answer? C. ¦ The answer, in short, is C. ¦ The answer has got to be C.
The answer can only be C. ¦ The answer, of course, is C. ¦ The answer seems to be C. ¦ The answer appears to be C.
The answer looks like C. ¦ The answer that fits best is C. ¦ The answer I choose is C.
The answer I arrive at is C. ¦ The answer we want is C. ¦ The answer you want is C.
The answer you are looking for is C. ¦ The answer corresponds to C. ¦ The answer matches option C.
The answer given by the text is C. ¦ The answer choice is C. ¦ The answer letter is C.
The letter of the correct answer is C. ¦ The letter corresponding to the correct answer is C.
The option corresponding to Paris is C. ¦ The correct answer corresponds to option C.
The correct answer among the options is C. ¦ The correct answer from the list is C.
The correct answer (out of A, B, C, D) is C. ¦ The correct answer to the question is C.
The correct choice, then, is C. ¦ The correct selection is C. ¦ The correct solution is C.
The correct conclusion is C. ¦ The correct match is C. ¦ The correct item is C. ¦ The correct alternative is C.
The proper choice is C. ¦ The appropriate answer is C. ¦ The accurate answer is C. ¦ The desired answer is C.
The expected answer is C. ¦ The intended answer is C. ¦ The official answer is C. ¦ The standard answer is C.
The logical choice is C. ¦ The obvious choice is C. ¦ The natural choice is C. ¦ The safest choice is C.
The strongest option is C. ¦ The better answer is C. ¦ The better option is C. ¦ The best available answer is C.
The best supported option is C. ¦ The best of these is C. ¦ The best one is C. ¦ The most correct answer is C.
The most fitting answer is C. ¦ The most suitable option is C. ¦ The most logical answer is C.
The most probable answer is C. ¦ The nearest option is C. ¦ The nearest value is option C.
The only choice that works is C. ¦ The only consistent option is C. ¦ The only statement that is true is C.
The only one that makes sense is C. ¦ The remaining option is C. ¦ The remaining choice, C, is correct.
The right letter is C. ¦ The right response is C. ¦ The right pick is C. ¦ The statement that is true is C.
The statement which is correct is C. ¦ The one I'd choose is C. ¦ The one to choose is C. ¦ The choice is clear: C.
The choice here is C. ¦ The choice would be C. ¦ The option is C. ¦ The option I choose is C.
The option that fits is C. ¦ The option to pick is C. ¦ My choice would be C. ¦ My pick is C. ¦ My vote is C.
My bet is C. ¦ My bet: C ¦ My answer would be option C. ¦ My answer stays C. ¦ My final choice is C.
My final answer: (C) ¦ My response: C ¦ My best answer is C. ¦ My inclination is C. ¦ Our choice is C.
Our final answer is C. ¦ Your answer is C. ¦ Your best choice is C. ¦ C would be correct.
C would be the best answer. ¦ C would be my answer. ¦ C would be right. ¦ C must be right. ¦ C must be the answer.
C has to be correct. ¦ C should be correct. ¦ C should be chosen. ¦ C is chosen. ¦ C is selected.
C is the correct one. ¦ C is the correct option. ¦ C is the correct answer choice. ¦ C is the best.
C is the best option. ¦ C is the best match. ¦ C is the closest. ¦ C is the closest match. ¦ C is the most likely.
C is the most accurate. ¦ C is the most plausible answer. ¦ C is the only valid one. ¦ C is the only possibility.
C is the only one left. ¦ C is the true statement. ¦ C is the winner. ¦ C is true. ¦ C is valid. ¦ C is accurate.
C is supported by the passage. ¦ C is consistent with this. ¦ C is what remains. ¦ C is left. ¦ C is my answer.
C is my choice. ¦ C is my final answer. ¦ C is our answer. ¦ C, clearly. ¦ C, obviously. ¦ C, of course.
C, no doubt. ¦ C, without a doubt. ¦ C, most likely. ¦ C, probably. ¦ C (Paris) ¦ C (Paris). ¦ C = Paris
C / Paris ¦ C -- Paris ¦ C => Paris ¦ C, i.e. Paris. ¦ C, namely Paris. ¦ C, that is, Paris. ¦ C, which is Paris.
C, Paris, is the capital. ¦ C, since Paris is the capital. ¦ C because Paris is the capital of France.
C; Paris is the capital. ¦ C... Paris. ¦ C describes it best. ¦ C agrees with the facts. ¦ C follows.
C follows from the text. ¦ C matches. ¦ C matches the description. ¦ C matches best. ¦ C satisfies everything.
C satisfies all the constraints. ¦ C stands. ¦ C survives. ¦ C does. ¦ C does fit. ¦ C can be chosen.
C seems best. ¦ C seems to be correct. ¦ C seems most plausible. ¦ C sounds right. ¦ C sounds best.
C looks correct. ¦ C looks best. ¦ C looks like the answer. ¦ C appears to be the right answer. ¦ C gets my vote.
C has my vote. ¦ C answers the question. ¦ C captures this. ¦ C states exactly this.
C says exactly this, so it is correct. ¦ Only (C) is correct. ¦ Only C fits. ¦ Only C matches.
Only C remains possible. ¦ Only C is left. ¦ Only C makes sense. ¦ Only answer C works. ¦ Only choice C holds.
Only statement C is right. ¦ Just option C is left. ¦ Nothing but C fits. ¦ None but C.
None of the others fits, so C. ¦ None of A, B, D works; it is C. ¦ None except C. ¦ No option but C works.
Paris. (C) ¦ Paris (C) ¦ Paris, C ¦ Paris: C ¦ Paris - C ¦ Paris = C ¦ Paris is C. ¦ Paris is option C.
Paris is the capital: C. ¦ Paris is the capital. C ¦ Paris is the capital.⏎⏎C ¦ Paris is the capital.⏎⏎(C)
Paris is the capital.⏎⏎**C** ¦ Paris is the capital.⏎Answer C ¦ Paris is the capital.⏎So C
Paris is the capital (option C). ¦ Paris, option C, is the capital. ¦ Paris, choice C. ¦ It is Paris (C).
It is Paris, C. ¦ It is Paris, so C. ¦ It is Paris, therefore C. ¦ It is Paris, therefore the answer is C.
The capital is Paris. Option C. ¦ The capital is Paris. Choice C. ¦ The capital is Paris. Answer: C
The capital is Paris. Therefore, option C. ¦ The capital is Paris. I choose C. ¦ The capital is Paris. That is C.
The capital is Paris. That's option C. ¦ The capital is Paris => C ¦ The capital is Paris ⇒ C
The capital is Paris ∴ C ¦ The capital is Paris [C] ¦ The capital is Paris, which appears as option C.
The capital is Paris, listed as C. ¦ The capital is Paris, given as (C). ¦ The capital is Paris; see C.
The capital is Paris, as stated in C. ¦ The capital is Paris, as in option C. ¦ A and B are wrong, D is old. So C.
A no, B no, D no. C. ¦ A is out. B is out. D is out. C it is. ¦ A, B: no. D: no. C: yes.
A: No. B: No. C: Yes. D: No. ¦ A. Wrong⏎B. Wrong⏎C. Correct⏎D. Wrong
A: incorrect⏎B: incorrect⏎C: correct⏎D: incorrect ¦ A) False⏎B) False⏎C) True⏎D) False
A - no⏎B - no⏎C - yes⏎D - no ¦ - A: ❌⏎- B: ❌⏎- C: ✅⏎- D: ❌ ¦ A ❌ B ❌ C ✅ D ❌
Option A: incorrect.⏎Option B: incorrect.⏎Option C: correct.⏎Option D: incorrect.
Option A is wrong. Option B is wrong. Option C is right. Option D is wrong.
A is not a capital, B is in Italy, D is in Germany, and C is correct. ¦ Eliminating A, B and D gives C.
Eliminating A, B and D leaves C. ¦ After eliminating A and B, and then D, C remains.
Having ruled out A, B, and D, we choose C. ¦ With A, B and D gone, C. ¦ A, B and D are wrong, therefore C.
A, B and D are all incorrect. The answer is C. ¦ A, B, D do not fit. C does.
Excluding A, B and D, only C is possible. ¦ We can eliminate A and B. Between C and D, C is more accurate.
Between C and D, I choose C. ¦ Between C and D, the better one is C. ¦ C and D are close, but C is right.
C and D both mention it, yet only C is correct. ¦ A and C are similar, but C is better.
Both C and D are plausible, but I'd go with C. ¦ B seems good, but the answer is C. ¦ B is plausible; C is correct.
B is a common mistake; the answer is C. ¦ B is a distractor. C is right. ¦ B might seem right, but C is.
You may think B, but it's C. ¦ Many choose B, but the answer is C. ¦ Some would say B. The answer is C.
Not B: the answer is C. ¦ Not A. Not B. Not D. It's C. ¦ Neither A, B, nor D. C.
It isn't A, it isn't B, and it isn't D, so it's C. ¦ It's not B, it's C. ¦ It isn't B but C.
The answer isn't B but C. ¦ The answer is not B. It is C. ¦ The answer is not A but C. ¦ Instead of B, choose C.
Rather than B, I'd choose C. ¦ I'd choose C over B. ¦ I'd take C over A or B. ¦ I'd choose C, not B.
Choose C, not D. ¦ C and not B. ¦ C but not B. ¦ C as opposed to B. ¦ C more than B. ¦ C is preferable to B.
C is superior to D. ¦ C is more accurate than D. ¦ C is closer than B. ¦ C fits better than B.
C, unlike B, is correct. ¦ C, however, is correct. ¦ C, on the other hand, is right. ¦ B. Wait, C. ¦ B... wait, C.
B? Hmm, no: C. ¦ Is it B? No. It's C. ¦ Is it C? Yes. ¦ B, no, C. ¦ B -> no, C ¦ I said B, but I meant C.
I thought B at first; now I think C. ¦ First guess: B. Final: C. ¦ First answer: B. Corrected answer: C.
Previously I answered B; the correct answer is C. ¦ Let me reconsider. C. ¦ Let me change my answer to C.
I change my answer to C. ¦ Changing to C. ¦ I'll switch to C. ¦ Revised answer: C ¦ Updated answer: C
Corrected: C ¦ The answer is B. Wait, I misread. The answer is C. ¦ The answer is B... no, C.
Answer: B. Correction: C. ¦ Answer: A⏎Actually the answer is C. ¦ C⏎⏎Because A, B and D are wrong.
C⏎⏎A: not capital. B: Italy. D: Germany. ¦ C⏎⏎(B is the capital of Italy.) ¦ C⏎Note: B is for Italy.
**C**⏎Option B is Italy's capital. ¦ C. B is Italy's, D is Germany's. ¦ C) because B is Italy's capital
(C), since A and B are wrong ¦ (C). Options A, B, D are wrong. ¦ C - not B, as B is in Italy.
C: not A, not B, not D. ¦ Answer: C, since B and D are abroad. ¦ Answer: C (B is Italy; D is Germany)
Answer: C. Why not A? It's not a capital. ¦ Answer: C; A is close.
Answer: C. Note that B would be right for Italy. ¦ The answer is C, as A, B, and D are wrong.
The answer is C; B is in Italy. ¦ The answer is C, although B is also a capital.
The answer is C, while B is Italy's capital. ¦ The answer is C, even though A is large.
The answer is C. A is wrong because it's not a capital. ¦ The answer is C. B is in Italy. D is in Germany.
I choose C. A is not a capital. ¦ I choose C because A is not a capital. ¦ I chose C because D is old.
Option C, because B is in Italy. ¦ Option C. B and D are abroad. ¦ 1: C ¦ 1 - C ¦ Question 1 – C ¦ Q1: C
Problem 3: C ¦ Item 2: (C) ¦ Answer to question 1: C ¦ Answer 1: C ¦ Answer #1: C ¦ No. 1: C ¦ No. 5 C
Step 3: The answer is C. ¦ Step 4: Choose C. ¦ Response: The answer is C. ¦ Output:⏎C ¦ Result = C ¦ Solution: (C)
Selected answer: C. ¦ Selected letter: C ¦ Correct letter: C ¦ Correct choice: C ¦ The letter: C ¦ choice: (c)
letter c ¦ option c. ¦ answer c ¦ the answer is c ¦ the answer is c. ¦ the correct answer is (c) ¦ (c) Paris
c) Paris ¦ c. paris ¦ it is c ¦ i choose c ¦ i think c ¦ so c ¦ \boxed{\text{(C)}} ¦ $\boxed{\textbf{C}}$
The answer is \boxed{C}. ¦ $$\boxed{C}$$ ¦ \textbf{C} ¦ \text{C} ¦ $C$ ¦ $(C)$ ¦ \(C\) ¦ <answer> C </answer>
<final_answer>C</final_answer> ¦ {"answer":"C","confidence":0.9} ¦ {'answer': 'C'} ¦ {"final_answer": "C"}
{"choice": "C"} ¦ answer = "C" ¦ answer: 'C' ¦ ```⏎C⏎``` ¦ `C`. ¦ __C__ ¦ _C_ ¦ **(C)** ¦ **C)** ¦ **C.** Paris
**C**: Paris ¦ **Option C** ¦ **Answer: C** ¦ **Answer:** C ¦ **Answer:** **C** ¦ ### Answer: C ¦ # C
Answer:⏎⏎**(C) Paris** ¦ Therefore, the answer is:⏎⏎**C** ¦ Therefore:⏎⏎C ¦ Resposta: C
La respuesta correcta es la C. ¦ La bonne réponse est C. ¦ Die richtige Antwort ist C. ¦ 正确答案是C。 ¦ 答案是 C。
选C
正解はC ¦ 정답: C ¦ Ответ: C ¦ Risposta: C ¦ Het antwoord is C. ¦ Going over the passage again, C.
Everything considered, option C is my pick. ¦ C. That's the one. ¦ C. Final answer. ¦ C. No question.
C — no contest. ¦ C it must be. ¦ C I guess ¦ c i guess ¦ C I'd say ¦ C would be my guess. ¦ C would be my choice.
C is the one I'd pick. ¦ C is what I'd go with. ¦ C is clearly right. ¦ C is obviously the answer.
C is almost certainly correct. ¦ C is very likely correct. ¦ C is probably right.
C is definitely the best choice. ¦ C is, in my view, correct. ¦ C is therefore correct. ¦ C is thus the answer.
C is hence right. ¦ C is the right one here. ¦ C is the right answer because Paris is the capital.
C is the answer since Paris is the capital. ¦ C is best. ¦ C is better. ¦ C is closest.
C is closest to the truth. ¦ C is most accurate. ¦ C is most likely. ¦ C is most consistent with the passage.
C is most strongly supported. ¦ C is fully supported. ¦ C is in line with the passage.
C is in agreement with the data. ¦ C is backed by the text. ¦ C is implied by the text. ¦ C is a perfect match.
C is a match. ¦ C is an exact match. ¦ C is a better fit. ¦ C is unambiguously right. ¦ C must hold.
C must be chosen. ¦ C must be true. ¦ C ought to be right. ¦ C has to be it. ¦ C needs to be chosen.
C can be selected. ¦ C can be concluded. ¦ C comes out on top. ¦ C comes closest. ¦ C gives the right result.
C yields the right value. ¦ C equals the computed value. ¦ C corresponds to Paris. ¦ C contains the right value.
C expresses this. ¦ C reflects this best. ¦ C represents the answer. ¦ C summarizes it best.
C explains the observation. ¦ C accounts for everything. ¦ C passes all checks. ¦ C checks out.
C ticks all the boxes. ¦ C sounds most plausible. ¦ C strikes me as right. ¦ C appears best.
C turned out to be right. ¦ C stays. ¦ C is confirmed. ¦ C is verified. ¦ My instinct says C. ¦ My gut says C.
My reasoning leads to C. ¦ My calculation gives C. ¦ The calculation gives C. ¦ The calculation leads to option C.
The computation yields (C). ¦ The evidence favors C. ¦ The evidence points to C. ¦ The evidence supports option C.
The facts point to C. ¦ The text supports C. ¦ The passage supports C. ¦ The author means C. ¦ The data favor (C).
The result is C. ¦ The result corresponds to C. ¦ The value corresponds to option C. ¦ The value matches C.
The number matches (C). ¦ The description fits C. ¦ The description matches option C. ¦ Everything points to C.
Everything fits C. ¦ All signs point to C. ¦ All evidence points to (C). ¦ Logic dictates C. ¦ Common sense says C.
Experience suggests C. ¦ History tells us C. ¦ We can safely choose C. ¦ We may conclude C. ¦ We must choose C.
We therefore choose C. ¦ We thus get C. ¦ We then pick C. ¦ We obtain C. ¦ We obtain option (C). ¦ We deduce C.
We infer C. ¦ We know it's C. ¦ We have option C. ¦ We settle on C. ¦ We are left with option C. ¦ We are done: C.
I am choosing C. ¦ I am picking C. ¦ I am selecting option C. ¦ I am sticking with C. ¦ I'm sticking to C.
I stay with C. ¦ I stick with C. ¦ I opt for C. ¦ I'd opt for C. ¦ I decided on C. ¦ I've decided: C.
I've settled on C. ¦ I determined that it's C. ¦ I determined the answer is C. ¦ I conclude that C is correct.
I conclude C. ¦ I submit C. ¦ I enter C. ¦ I respond C. ¦ I answer C. ¦ I answered C. ¦ I'm answering C.
I favor C. ¦ I like C. ¦ I like C best. ¦ I trust C. ¦ I find C most convincing. ¦ I find C to be correct.
I consider C correct. ¦ I consider C to be the best answer. ¦ I regard C as correct. ¦ I'd call it C.
I'd rank C first. ¦ I'd give it to C. ¦ I'd select option (C). ¦ I'd have to say C. ¦ I have to go with C.
I want to choose C. ¦ I would conclude C. ¦ I would therefore choose C. ¦ I would opt for option C. ¦ I'll say C.
I'll take C. ¦ I'll take C, please. ¦ I'll answer C. ¦ I'll pick C for this one. ¦ I'll choose letter C.
Let's choose C. ¦ Let's say C. ¦ Let's pick C. ¦ Let me go with C. ¦ Make it C. ¦ Call it C. ¦ Put me down for C.
Lock in C. ¦ Locking in C. ¦ Submit C. ¦ Answering C. ¦ Choosing C. ¦ Selecting C. ¦ Picking option C. ¦ Voting C.
Right, C. ¦ Great, so C. ¦ OK: C ¦ Alright, C it is. ¦ Fine. C. ¦ Done: C ¦ Yes. C. ¦ Yep, C. ¦ Of course it's C.
Naturally, C. ¦ Evidently, C. ¦ Apparently C. ¦ Presumably C. ¦ Undoubtedly C. ¦ Certainly C. ¦ Without doubt, C.
No doubt it's C. ¦ Hands down C. ¦ By far C. ¦ Simply C. ¦ Exactly C. ¦ Precisely (C). ¦ Specifically, C.
In particular, C. ¦ In fact, C. ¦ In that case, C. ¦ In this case it's C. ¦ In sum, C. ¦ In brief: C ¦ In a word: C
In other words C. ¦ To conclude, C. ¦ To summarize, C is correct. ¦ To answer the question: C. ¦ To be precise, C.
For the record, C. ¦ For what it's worth, C. ¦ With that, C. ¦ With this in mind, C. ¦ Given the above, I choose C.
Given all this, the answer is C. ¦ Considering all options, C. ¦ Considering the above, C seems right.
Judging by the text, C. ¦ According to the passage, C. ¦ According to my calculation, C. ¦ From this, C.
From the above we get C. ¦ From this it follows that C is right. ¦ Hence we choose C. ¦ Hence our answer: C
Thus I pick C. ¦ Thus we select (C). ¦ Therefore I'd go with C. ¦ Therefore our choice is C. ¦ So I will go with C.
So I'd answer C. ¦ So let's go with C. ¦ So the best answer is C. ¦ So the only option left is C.
So only C is left. ¦ So that's C. ¦ So that would be C. ¦ So this must be C. ¦ And so, C. ¦ And that's C.
And that is option C. ¦ Which means C. ¦ Which is why it's C. ¦ Which is why I choose C. ¦ Which brings me to C.
That brings us to option C. ¦ That's why C is correct. ¦ That's why the answer is C. ¦ That must be C.
That means C is right. ¦ That means the answer is C. ¦ That settles it: C. ¦ That rules out A, B and D, so C.
That eliminates A and B and D. C. ¦ This can only mean C. ¦ This clearly is C. ¦ This has to be C.
This must be option C. ¦ This one is C. ¦ This one's C. ¦ This question: C. ¦ This rules out everything but C.
It comes down to C. ¦ It all points to C. ¦ It seems to be C. ¦ It seems that C is correct. ¦ It appears to be C.
It looks like C. ¦ It turns out to be C. ¦ It would have to be C. ¦ It would be C. ¦ It will be C. ¦ It was C.
It's option (C), Paris. ¦ It's clearly C. ¦ It's obviously C. ¦ It's got to be C. ¦ It's definitely option C.
It's gotta be C. ¦ It's letter C. ¦ A? No. B? No. C? Yes. ¦ A: wrong, B: wrong, C: right, D: wrong
A (wrong), B (wrong), C (right), D (wrong) ¦ A → no; B → no; C → yes; D → no
(A) is incorrect. (B) is incorrect. (C) is correct. (D) is incorrect.
A) Incorrect, it's not a capital. B) Incorrect, it's in Italy. C) Correct. D) Incorrect.
A is not right. B is not right. D is not right. So it's C. ¦ A can't be, B can't be, D can't be. C.
Not A; not B; C; not D. ¦ A, B: no way. D: no. So C. ¦ Options A, B and D are wrong; option C is right.
Options A and B are off. D is outdated. Option C. ¦ Of A and C, C is better. ¦ Of C and D, I prefer C.
Compared to D, C is better. ¦ Compared with A, C is more accurate. ¦ In contrast to B, C is right.
Contrary to B, C is right. ¦ As opposed to A, C is accurate. ¦ Despite B's appeal, C.
Despite the appeal of B, the answer is C. ¦ Even though B looks good, C is right. ¦ Although B looks good, it's C.
Though tempting, B is wrong; C. ¦ B is almost right, but C is right. ¦ B is partly right, but C is fully right.
B was my first thought, but C is correct. ¦ B was tempting. C is correct. ¦ B sounds good, but I'd go with C.
B is close but no; C. ¦ B would be wrong, so C. ¦ If not B, then C. And it's not B. So C. ¦ It's C, not B.
It's C rather than B. ¦ It's C because B is in Italy. ¦ It's C since A isn't a capital.
C, because A isn't a capital. ¦ C, given that B is in Italy. ¦ C, for B is in Italy. ¦ C, whereas B is in Italy.
C, although B is close. ¦ C, even if B is close. ¦ C, though B is close. ¦ C, but B is close.
C. B is close, though. ¦ C (not B) ¦ C (B is in Italy) ¦ C [A is wrong] ¦ Answer: C is correct.
Answer: C, I think. ¦ Answer: probably C ¦ Answer: most likely C. ¦ Answer: must be C. ¦ Answer: I choose C.
Answer: I'd say C. ¦ Answer: It is C. ¦ Answer: The answer is C. ¦ Answer: **C** (Paris) ¦ Answer: [C]
Answer: <C> ¦ Answer: 'C' ¦ Answer: "C" ¦ Answer:C ¦ Answer:(C) ¦ ANSWER:⏎C ¦ Answer -> C ¦ Answer|C
Your answer: C ¦ The answer -> C ¦ The answer => C ¦ the answer's (c) ¦ the correct option is c
the correct letter is c. ¦ the correct choice would be c ¦ The Answer Is C ¦ THE ANSWER IS C ¦ the answer is: **c**
The final answer is (C) ¦ The final answer: C. ¦ The final choice is C. ¦ So the final answer is C. ¦ Final: (C)
Final Answer⏎C ¦ FINAL: C ¦ My final: C ¦ Choice = C ¦ Chosen = C ¦ Selected option = C ¦ correct_option: C
answer_letter = C ¦ option=C ¦ label: C ¦ Label: (C) ¦ prediction: C ¦ Prediction: C
"""
NOT_CHOSEN = r"""
A or C ¦ Either A or C. ¦ C or D ¦ Both A and C. ¦ A and C ¦ A, C ¦ It could be A, B, C or D.
I cannot decide between A and C. ¦ It is not C. ¦ Not C. ¦ C is wrong. ¦ C is incorrect. ¦ C is not the answer.
The answer is not C. ¦ The answer isn't C. ¦ I don't think it's C. ¦ I doubt that it is C. ¦ C is unlikely.
C can be ruled out. ¦ We can exclude C. ¦ Eliminate C. ¦ Anything but C. ¦ All but C. ¦ All except C.
None of these. ¦ None of the above. ¦ I don't know. ¦ I cannot answer this. ¦ There is no correct option.
Is it C? ¦ Could it be C? ¦ C?? No. ¦ C is false. ¦ C cannot be right. ¦ C fails. ¦ C does not work.
C does not fit. ¦ C would be the answer in Italy. ¦ If it were Italy, the answer would be C. ¦ A B C D
A. Lyon⏎B. Rome⏎C. Paris⏎D. Bonn ¦ The options are A, B, C and D. ¦ Let me think about C.
First, consider option C. ¦ Option C says Paris. ¦ C stands for carbon. ¦ Vitamin C is good.
Let me look at option C first. ¦ C is a tempting distractor. ¦ Some might choose C.
Many people would pick C, wrongly. ¦ C, D ¦ C/D ¦ C and/or D ¦ maybe C, maybe D ¦ Neither C nor D
The answer is C or D. ¦ The answer is either C or D. ¦ The answer is C and D. ¦ The answer is C, D.
Cannot be determined. ¦ Compared with the others, it depends. ¦ Can you give more context?
C is partially right, and so is D. ¦ I would eliminate C. ¦ The wrong answer is C. ¦ The incorrect option is C.
The least likely is C. ¦ The answer could be C, but also A. ¦ The answer is E. ¦ E ¦ A is wrong.
A careful reader sees that nothing fits. ¦ I am unable to choose. ¦ A person should decide.
As an AI, I cannot choose. ¦ Because A and B are wrong, it is hard to say. ¦ Option A and option B are wrong.
I think a doctor should see this. ¦ It's either C or D. ¦ C, or maybe D. ¦ C or possibly B.
C, though D is equally good. ¦ C and D are both correct. ¦ Both C and D. ¦ C + D ¦ C & D ¦ C as well as D.
A, B, and C ¦ A through C. ¦ One of A and C. ¦ The answer is A, B or C. ¦ The answer is A and C.
The answer is both A and C. ¦ Answer: A, C ¦ Answer: C or D ¦ Answer: A/C ¦ Answer: C? ¦ Maybe C? Maybe D?
Could be C, could be D. ¦ I'm torn between C and D. ¦ I'm not sure whether it's C or D. ¦ I can't tell if it's C.
I'm not sure it's C. ¦ I wouldn't say C. ¦ I would not choose C. ¦ I wouldn't pick C. ¦ Don't pick C.
Do not choose C. ¦ Avoid C. ¦ C must be wrong. ¦ C has to be wrong. ¦ C isn't right. ¦ C isn't it.
C isn't the answer. ¦ C is not correct. ¦ C is not right. ¦ C is out. ¦ C is excluded. ¦ C is ruled out.
C is impossible. ¦ C can't be correct. ¦ C cannot be the answer. ¦ C doesn't fit. ¦ C doesn't work.
C seems wrong. ¦ C looks wrong. ¦ C appears incorrect. ¦ C would be wrong. ¦ C might be right.
Perhaps it is not C. ¦ It isn't C. ¦ It can't be C. ¦ It cannot be C. ¦ It's definitely not C. ¦ Definitely not C.
Certainly not C. ¦ Never C. ¦ No, not C. ¦ Everything except C. ¦ Any option but C. ¦ The answer is anything but C.
The answer cannot be C. ¦ The answer can't be C. ¦ The answer is definitely not C. ¦ The only wrong option is C.
The false statement is not clear. ¦ The worst option is C. ¦ The least plausible is C. ¦ We rule out C.
We reject C. ¦ I eliminate C. ¦ So not C. ¦ Thus C is wrong. ¦ Therefore C is false. ¦ Hence C is not the answer.
No answer. ¦ I have no idea. ¦ Not enough information. ¦ All of the above. ¦ None. ¦ N/A ¦ Unknown ¦ ? ¦ ...
I refuse to answer. ¦ Sorry, I can't help with that. ¦ A good question! ¦ A bit more context would help.
B careful! ¦ See you later. ¦ Let us consider A. Then B. Then C. Then D. ¦ Consider A: Lyon. Consider B: Rome.
Options: A, B, C, D ¦ A) Lyon B) Rome C) Paris D) Bonn ¦ Which one is it, A, B, C or D? ¦ What does C mean?
C is Paris. D is Bonn. ¦ Option A is Lyon, option B is Rome. ¦ If A is true then C is true.
The answer depends on whether C holds. ¦ If the country is France then C, otherwise B. ¦ The answer is F.
Option G. ¦ C or B? ¦ C maybe ¦ C? Not sure. ¦ C? D? Who knows. ¦ C versus D is hard. ¦ C and D tie.
C is as good as D. ¦ C is no better than D. ¦ C isn't better than D. ¦ I like both C and D.
I prefer neither C nor D. ¦ I'd skip C. ¦ I'd drop C. ¦ I'd cross out C. ¦ Cross out C. ¦ Ignore C. ¦ Strike C.
Skip C. ¦ Leave out C. ¦ Remove C. ¦ C should be eliminated. ¦ C must be eliminated. ¦ C can be eliminated.
C should not be chosen. ¦ C must not be chosen. ¦ C would not be right. ¦ C wouldn't work. ¦ C won't do.
C is off. ¦ C is off the table. ¦ C is no good. ¦ C is no answer. ¦ C is far from correct.
C is anything but correct. ¦ C is hardly right. ¦ C is never right. ¦ C contradicts the passage.
C conflicts with the text. ¦ C misses the point. ¦ C goes too far. ¦ C is too broad. ¦ C is too narrow.
C is irrelevant. ¦ C is unsupported. ¦ C is not supported. ¦ C lacks support. ¦ C violates the condition.
That rules out C. ¦ This excludes C. ¦ This eliminates C. ¦ This contradicts C. ¦ We can discard C.
We can cross off C. ¦ The answer is not A, not B, and not C. ¦ It's neither C nor D. ¦ None of A, B, C, D.
All of A, B, C. ¦ Who would choose C? ¦ Why would anyone choose C? ¦ Is C right? ¦ Should I pick C? ¦ How about C?
What about C? ¦ Suppose C is correct. ¦ Assume C. ¦ Say C holds. Then what? ¦ Let C be true.
Whether C holds is unclear. ¦ C may or may not be right. ¦ C might be. ¦ It might be C. ¦ It may be C or D.
Possibly C, possibly D. ¦ I am between C and D. ¦ 50/50 between C and D. ¦ C has some merit, as does D.
There are arguments for C and for D.
"""


def forms(block: str) -> list[str]:
    return [one.strip().replace("⏎", "\n") for line in block.strip().split("\n") for one in line.split(" ¦ ")]


def test_forms_of_a_choice_are_read_and_none_as_another_letter() -> None:
    found = [extract_choice(one, 4) for one in forms(CHOSEN)]
    assert set(found) == {"C", None}
    assert found.count("C") >= 0.97 * len(found)


def test_what_chooses_nothing_is_no_choice() -> None:
    chosen = [one for one in forms(NOT_CHOSEN) if extract_choice(one, 4) is not None]
    assert len(chosen) <= 0.04 * len(forms(NOT_CHOSEN)), chosen


async def test_mmlu_pro_is_graded_as_its_own_evaluator_grades_it() -> None:
    grader = build_choice_grader(ChoiceSettings(answer="B", options=10, rule="mmlu-pro"), GraderTools())
    for answer in ("The answer is (B). Or the answer is (C).", "Answer: A, Answer: B\nAnswer: C", "no idea: A, then B"):
        assert (await grader.grade(answer)).mark is GradeMark.RIGHT, answer
    assert (await grader.grade("nothing here")).mark is GradeMark.NO_ANSWER
