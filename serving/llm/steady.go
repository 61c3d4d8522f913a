package llm

import "math"

// PromptTime is the seconds that a prompt takes which is computed alone, on one stage after the other.
func PromptTime(takes Timer, stages int, prompt float64) float64 {
	s := &Step{}
	s.Add(int64(math.Ceil(prompt)), 0)
	return float64(max(1, stages)) * takes(s).Seconds()
}

// TokenTime is the seconds between two tokens of an answer in the steady state of n requests that are answered at once,
// each of which is followed by the next: a step that makes a token of each, at the mean context, and the prompts that
// come meanwhile, n for each length of an answer, since every one stalls the others once. Where there are several
// stages, as many batches share the requests; meanwhile a stage computes a step of each, and a part of each prompt.
// Lengths are tokens in the mean. It holds as long as KV memory does, which Saturation says.
func TokenTime(takes Timer, stages, n int, prompt, output float64) float64 {
	stages = max(1, stages)
	context, each := int64(prompt+output/2), int64(n+stages-1)/int64(stages)
	s := &Step{Tokens: each, Attention: each * context, Read: each * context}
	return float64(stages)*takes(s).Seconds() + float64(n)/output*PromptTime(takes, 1, prompt)
}

// Saturation is what n requests take of KV memory in the mean while they are answered, as a part of all blocks: above
// 1, requests wait for memory, however fast steps are.
func Saturation(blocks, n int, prompt, output float64) float64 {
	return float64(n) * (prompt + output/2) / (float64(blocks) * BlockTokens)
}
