package gateway

import (
	"bytes"
	"encoding/json"
	"time"
)

// usage is how many tokens a request and its answer have, as OpenAI's interface says it at the answer's end.
type usage struct {
	Prompt int64 `json:"prompt_tokens"`
	Answer int64 `json:"completion_tokens"`
}

const (
	tailKept     = 4 << 10 // bytes of an answer's end
	bytesAToken  = 4       // of a request's body, until an answer says how many tokens its prompt has
	newestTokens = 0.1     // weight of an answer in the mean of bytes for each token
)

// end keeps the end of an answer.
func (x *attempt) end(p []byte) {
	if len(p) > tailKept {
		p = p[len(p)-tailKept:]
	}
	if over := len(x.tail) + len(p) - tailKept; over > 0 {
		x.tail = x.tail[:copy(x.tail, x.tail[over:])]
	}
	x.tail = append(x.tail, p...)
}

// usage is what an answer's end says of its tokens. Within a text the quotes of the key would be escaped.
func (x *attempt) usage() (u usage, ok bool) {
	key := []byte(`"usage":`)
	i := bytes.LastIndex(x.tail, key)
	if i < 0 || json.NewDecoder(bytes.NewReader(x.tail[i+len(key):])).Decode(&u) != nil {
		return usage{}, false
	}
	const most = 1 << 30
	return u, u.Prompt > 0 && u.Answer >= 0 && u.Prompt < most && u.Answer < most
}

// countLanguage counts the whole answer of a language model to a request that came at an instant. What the answer does
// not say of its tokens is taken from its events, and from the length of the request.
func (p *pool) countLanguage(x *attempt, came, now time.Time) {
	t, took := &p.count.Tally, now.Sub(came)
	u, said := x.usage()
	switch {
	case said && x.sent > 0:
		each := float64(x.sent) / float64(u.Prompt)
		if p.perToken == 0 {
			p.perToken = each
		}
		p.perToken += newestTokens * (each - p.perToken)
	case !said:
		each := p.perToken
		if each == 0 {
			each = bytesAToken
		}
		u.Prompt = max(1, int64(float64(x.sent)/each))
		if x.stream != nil {
			u.Answer = max(0, int64(x.stream.events)-1) // the last says that it is over
		}
	}
	t.Prompts += u.Prompt
	t.Outputs += u.Answer
	t.Tokens += u.Answer
	inTime := p.spec.LatencyMS == 0 || took <= p.spec.goal()
	first, each := millis(p.spec.TTFTMS), millis(p.spec.TPOTMS)
	if s := x.stream; s != nil && s.events > 0 {
		s.count(t, came)
		inTime = inTime && (first == 0 || s.first.Sub(came) <= first) && (each == 0 || s.each() <= each)
	} else if first > 0 && each > 0 { // of an answer in one piece it is known only when it was there
		inTime = inTime && took <= first+each*time.Duration(max(0, u.Answer-1))
	}
	t.Answer(took, inTime)
}
