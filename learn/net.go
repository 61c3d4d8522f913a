package learn

import "math"

// Net is a network of fully connected layers; all but the last are followed by a leaky rectifier. Sizes are
// those of the input, the hidden layers and the output; W[l] has a row of Sizes[l] numbers for each of the
// Sizes[l+1] outputs of layer l.
type Net struct {
	Sizes []int
	W, B  [][]float64
}

// leak is the slope below zero, so that no unit dies.
const leak = 0.01

// NewNet makes a network with random weights (He et al., 2015); the last layer's
// are a tenth of that, so that an untrained network prefers nothing.
func NewNet(r *Rand, sizes ...int) *Net {
	n := &Net{Sizes: sizes}
	for l := range len(sizes) - 1 {
		w := make([]float64, sizes[l]*sizes[l+1])
		scale := math.Sqrt(2 / float64(sizes[l]))
		if l == len(sizes)-2 {
			scale = float64(scale * 0.1)
		}
		for i := range w {
			w[i] = float64(scale * r.Norm())
		}
		n.W, n.B = append(n.W, w), append(n.B, make([]float64, sizes[l+1]))
	}
	return n
}

// zero is a network of the same shape with all weights 0.
func (n *Net) zero() *Net {
	z := &Net{Sizes: n.Sizes}
	for l := range n.W {
		z.W, z.B = append(z.W, make([]float64, len(n.W[l]))), append(z.B, make([]float64, len(n.B[l])))
	}
	return z
}

// Params lists all weights, layer by layer; what is written there changes the network.
func (n *Net) Params() [][]float64 { return n.params() }

// Clone is a copy.
func (n *Net) Clone() *Net {
	c := n.zero()
	for i, p := range c.params() {
		copy(p, n.params()[i])
	}
	return c
}

// params lists all weights, layer by layer.
func (n *Net) params() (list [][]float64) {
	for l := range n.W {
		list = append(list, n.W[l], n.B[l])
	}
	return list
}

// trace keeps what a network computed for one input, which its gradient needs.
type trace struct {
	in   []float64   // the input's own part; the rest is shared with others
	acts [][]float64 // by layer
}

// reserve allocates memory for a network's layers.
func (t *trace) reserve(n *Net) {
	if len(t.acts) == len(n.W) {
		return
	}
	t.acts = nil
	for l := range n.W {
		t.acts = append(t.acts, make([]float64, n.Sizes[l+1]))
	}
}

// prefix computes the contribution of the shared first inputs to the first layer, once for many inputs.
func (n *Net) prefix(shared, pre []float64) {
	width := n.Sizes[0]
	for o := range pre {
		pre[o] = n.B[0][o] + dot(shared, n.W[0][o*width:])
	}
}

// forward computes the network's output of an input whose shared part is already in pre; own is the rest of it.
func (n *Net) forward(pre, own []float64, t *trace) []float64 {
	t.reserve(n)
	t.in = own
	width := n.Sizes[0]
	in := own
	for l := range n.W {
		out := t.acts[l]
		for o := range out {
			if l == 0 {
				out[o] = pre[o] + dot(own, n.W[0][o*width+width-len(own):(o+1)*width])
			} else {
				out[o] = n.B[l][o] + dot(in, n.W[l][o*n.Sizes[l]:])
			}
			if l < len(n.W)-1 && out[o] < 0 {
				out[o] = float64(out[o] * leak)
			}
		}
		in = out
	}
	return in
}

// Forward computes the network's output of an input.
func (n *Net) Forward(in []float64) []float64 {
	var t trace
	return append([]float64(nil), n.forward(n.B[0], in, &t)...)
}

// backward adds the gradient of a trace to grad, given the gradient of the output. It returns the gradient of
// the first layer before its rectifier, from which that of the shared part follows (backShared). It is
// overwritten by the next call with the same buf.
func (n *Net) backward(t *trace, out []float64, grad *Net, buf *[2][]float64) []float64 {
	d := out
	for l := len(n.W) - 1; ; l-- {
		width := n.Sizes[l]
		if l == 0 {
			for o, v := range d {
				grad.B[0][o] += v
				axpy(v, t.in, grad.W[0][o*width+width-len(t.in):(o+1)*width])
			}
			return d
		}
		in := t.acts[l-1]
		next := (*buf)[l%2][:0]
		for range width {
			next = append(next, 0)
		}
		for o, v := range d {
			grad.B[l][o] += v
			axpy(v, in, grad.W[l][o*width:(o+1)*width])
			axpy(v, n.W[l][o*width:(o+1)*width], next)
		}
		for i := range next {
			if in[i] < 0 {
				next[i] = float64(next[i] * leak)
			}
		}
		(*buf)[l%2] = next
		d = next
	}
}

// backShared adds the part of the first layer's gradient that belongs to the shared inputs: to the weights, and
// to the gradient of these inputs themselves.
func (n *Net) backShared(first, shared []float64, grad *Net, in []float64) {
	width := n.Sizes[0]
	for o, v := range first {
		axpy(v, shared, grad.W[0][o*width:o*width+len(shared)])
		if in != nil {
			axpy(v, n.W[0][o*width:o*width+len(shared)], in)
		}
	}
}

// Adam steps weights against their gradients (Kingma, Ba, 2015: beta 0.9 and 0.999).
type Adam struct {
	Rate float64
	step int
	m, v [][]float64
}

// Step moves the weights, and clears the gradients. A gradient longer than limit is scaled down to it; 0: no
// limit.
func (a *Adam) Step(params, grads [][]float64, limit float64) {
	if a.m == nil {
		for i := range params {
			a.m, a.v = append(a.m, make([]float64, len(params[i]))), append(a.v, make([]float64, len(params[i])))
		}
	}
	a.step++
	square := 0.0
	for _, g := range grads {
		square += dot(g, g)
	}
	scale := 1.0
	if length := math.Sqrt(square); limit > 0 && length > limit {
		scale = limit / length
	}
	c1, c2 := 1-power(0.9, a.step), 1-power(0.999, a.step)
	for i, g := range grads {
		m, v, p := a.m[i], a.v[i], params[i]
		for k := range g {
			d := float64(g[k] * scale)
			m[k] = float64(0.9*m[k]) + float64(0.1*d)
			v[k] = float64(0.999*v[k]) + float64(0.001*float64(d*d))
			p[k] -= float64(a.Rate*(m[k]/c1)) / (math.Sqrt(v[k]/c2) + 1e-8)
			g[k] = 0
		}
	}
}

func power(x float64, n int) float64 {
	y := 1.0
	for ; n > 0; n >>= 1 {
		if n&1 == 1 {
			y = float64(y * x)
		}
		x = float64(x * x)
	}
	return y
}
