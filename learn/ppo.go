package learn

import "math"

// never is the rating of impossible actions.
var never = math.Inf(-1)

// Softmax appends the probabilities of ratings to buf: exactly 0 for masked ones, and the others add up to 1. If
// all are masked, all are 0.
func Softmax(logits []float64, mask []bool, buf []float64) []float64 {
	most := never
	for i, v := range logits {
		if mask[i] {
			most = max(most, v)
		}
	}
	at, sum := len(buf), 0.0
	for i, v := range logits {
		p := 0.0
		if mask[i] {
			p = Exp(v - most)
		}
		sum += p
		buf = append(buf, p)
	}
	for i := range buf[at:] {
		if sum > 0 {
			buf[at+i] /= sum
		}
	}
	return buf
}

// Advantages are the generalised ones (Schulman et al., 2016). values has one more entry than rewards: the value
// after the last; discounts are gamma*lambda per step.
func Advantages(rewards, values []float64, gamma, lambda float64) []float64 {
	list := make([]float64, len(rewards))
	next := 0.0
	for i := len(rewards) - 1; i >= 0; i-- {
		delta := rewards[i] + float64(gamma*values[i+1]) - values[i]
		next = delta + float64(float64(gamma*lambda)*next)
		list[i] = next
	}
	return list
}

// Choice is a decision that was taken, with what learning needs.
type Choice struct {
	Scene     Scene
	Row       int
	LogProb   float64
	Worth     float64 // the agent's estimate of the value
	Reward    float64 // until the next choice
	Advantage float64
	Return    float64
}

// PPO has the settings of learning. The zero value is not usable: see Defaults.
type PPO struct {
	Clip, Gamma, Lambda, Entropy, Rate float64
	Epochs, Batch                      int
}

// Defaults are the usual ones (SCHED^2, GLOBECOM'19; Meta-RL, TCC'23).
func Defaults() PPO {
	return PPO{Clip: 0.2, Gamma: 0.99, Lambda: 0.95, Entropy: 0.01, Rate: 3e-4, Epochs: 10, Batch: 64}
}

// Learner trains an agent.
type Learner struct {
	PPO
	agent  *Agent
	adam   Adam
	grader grader
	look   Look
	random *Rand
	rows   []float64
}

// NewLearner makes a learner of an agent, which it changes.
func NewLearner(a *Agent, p PPO, seed uint64) *Learner {
	return &Learner{PPO: p, agent: a, adam: Adam{Rate: p.Rate}, grader: grader{grad: a.zero()}, random: NewRand(seed)}
}

// Credit computes the advantages and returns of an episode's choices.
func (p *PPO) Credit(episode []Choice) {
	rewards, values := make([]float64, len(episode)), make([]float64, len(episode)+1)
	for i := range episode {
		rewards[i], values[i] = episode[i].Reward, episode[i].Worth
	}
	for i, a := range Advantages(rewards, values, p.Gamma, p.Lambda) {
		episode[i].Advantage, episode[i].Return = a, a+values[i]
	}
}

// Improve learns from credited choices: advantages are first normalised to mean 0 and variance 1.
func (l *Learner) Improve(choices []Choice) {
	standardise(choices)
	order := make([]int, len(choices))
	for i := range order {
		order[i] = i
	}
	for range l.Epochs {
		Shuffle(l.random, order)
		for from := 0; from < len(order); from += l.Batch {
			batch := order[from:min(from+l.Batch, len(order))]
			for _, i := range batch {
				l.learn(&choices[i], 1/float64(len(batch)))
			}
			l.adam.Step(l.agent.params(), l.grader.grad.params(), 0.5)
		}
	}
}

func standardise(choices []Choice) {
	if len(choices) < 2 {
		return
	}
	mean, square := 0.0, 0.0
	for i := range choices {
		mean += choices[i].Advantage / float64(len(choices))
	}
	for i := range choices {
		d := choices[i].Advantage - mean
		square += float64(d*d) / float64(len(choices))
	}
	for i := range choices {
		choices[i].Advantage = (choices[i].Advantage - mean) / (math.Sqrt(square) + 1e-8)
	}
}

// learn adds the gradient of one choice's loss: the error of the value less the surrogate and the entropy.
func (l *Learner) learn(c *Choice, weight float64) {
	l.agent.Judge(&c.Scene, &l.look)
	p := l.look.Probs
	ratio := Exp(Log(max(p[c.Row], 1e-12)) - c.LogProb)
	push := 0.0 // gradient of the surrogate by the logarithm of the probability
	if clipped := within(ratio, 1-l.Clip, 1+l.Clip); float64(ratio*c.Advantage) <= float64(clipped*c.Advantage) {
		push = float64(ratio * c.Advantage)
	}
	entropy := 0.0
	for _, v := range p {
		if v > 0 {
			entropy -= float64(v * Log(v))
		}
	}
	l.rows = l.rows[:0]
	for i, v := range p {
		g := float64(push * v)
		if i == c.Row {
			g -= push
		}
		if v > 0 {
			g += float64(l.Entropy * float64(v*(Log(v)+entropy)))
		}
		l.rows = append(l.rows, float64(weight*g))
	}
	miss := l.agent.Value(&l.look) - c.Return
	l.grader.back(l.agent, &c.Scene, &l.look, l.rows, float64(float64(0.5*weight)*within(miss, -1, 1)))
}

// Imitate learns to repeat choices, and to predict their outcome (cross-entropy): a first step, which Improve
// continues.
func (l *Learner) Imitate(choices []Choice, epochs int) {
	order := make([]int, len(choices))
	for i := range order {
		order[i] = i
	}
	for range epochs {
		Shuffle(l.random, order)
		for from := 0; from < len(order); from += l.Batch {
			batch := order[from:min(from+l.Batch, len(order))]
			for _, i := range batch {
				c := &choices[i]
				l.agent.Judge(&c.Scene, &l.look)
				l.rows = l.rows[:0]
				for k, v := range l.look.Probs {
					if k == c.Row {
						v--
					}
					l.rows = append(l.rows, v/float64(len(batch)))
				}
				miss := l.agent.Value(&l.look) - c.Return
				l.grader.back(l.agent, &c.Scene, &l.look, l.rows, float64(0.5*within(miss, -1, 1))/float64(len(batch)))
			}
			l.adam.Step(l.agent.params(), l.grader.grad.params(), 0.5)
		}
	}
}

// Reptile moves weights a step towards adapted ones (Nichol, Achiam, Schulman, 2018).
func Reptile(meta, adapted *Agent, step float64) {
	to, from := meta.params(), adapted.params()
	for i := range to {
		for k := range to[i] {
			to[i][k] += float64(step * (from[i][k] - to[i][k]))
		}
	}
}

// CUSUM detects growing errors: it accumulates their excess over the mean and some slack, never below 0 (Page,
// 1954).
type CUSUM struct {
	Slack, Limit float64 // in standard deviations
	Mean, Dev    float64 // of errors without drift
	Sum          float64
}

// Add takes one error and reports a drift, after which it starts again.
func (c *CUSUM) Add(x float64) bool {
	c.Sum = max(0, c.Sum+(x-c.Mean)/max(c.Dev, 1e-9)-c.Slack)
	if c.Sum <= c.Limit {
		return false
	}
	c.Sum = 0
	return true
}
