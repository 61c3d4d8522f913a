package llm

import "math"

// PromptTime is the seconds that a prompt takes which is computed alone.
func PromptTime(takes Timer, prompt float64) float64 {
	s := &Step{}
	s.Add(int64(math.Ceil(prompt)), 0)
	return takes(s).Seconds()
}

// TokenTime is the seconds between two tokens of an answer in the steady state of n requests that are answered at once,
// each of which is followed by the next: a step that makes a token of each, at the mean context, and the prompts that
// come meanwhile, n for each length of an answer, since every one stalls the others once. Lengths are tokens in the
// mean. It holds as long as KV memory does, which Saturation says.
func TokenTime(takes Timer, n int, prompt, output float64) float64 {
	context := int64(prompt + output/2)
	s := &Step{Tokens: int64(n), Attention: int64(n) * context, Read: int64(n) * context}
	return takes(s).Seconds() + float64(n)/output*PromptTime(takes, prompt)
}

// Saturation is what n requests take of KV memory in the mean while they are answered, as a part of all blocks: above
// 1, requests wait for memory, however fast steps are.
func Saturation(blocks, n int, prompt, output float64) float64 {
	return float64(n) * (prompt + output/2) / (float64(blocks) * BlockTokens)
}
