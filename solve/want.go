package solve

// Want is a request for GPUs with its place in a line: the highest Worth first, then the smallest
// Since, then the smallest At. No two At of a list are equal, and no Worth is NaN.
type Want struct {
	Worth    float64
	Since    int64
	At, GPUs int32
}

// before reports whether w precedes o in the line.
func (w *Want) before(o *Want) bool {
	if w.Worth != o.Worth {
		return w.Worth > o.Worth
	}
	if w.Since != o.Since {
		return w.Since < o.Since
	}
	return w.At < o.At
}

// few is the length up to which insertion sort is used.
const few = 12

// split partitions a list around one of its elements, so that the elements up to it in line order
// come first, and returns their number: at least one, and fewer than all. The list is longer than
// few.
func split(list []Want) int {
	mid, last := len(list)/2, len(list)-1
	for _, x := range [3][2]int{{0, mid}, {mid, last}, {0, mid}} { // moves the median of three to the middle
		if list[x[1]].before(&list[x[0]]) {
			list[x[0]], list[x[1]] = list[x[1]], list[x[0]]
		}
	}
	pivot := list[mid]
	i, j := 0, last
	for {
		for list[i].before(&pivot) {
			i++
		}
		for pivot.before(&list[j]) {
			j--
		}
		if i >= j {
			return j + 1
		}
		list[i], list[j] = list[j], list[i]
		i, j = i+1, j-1
	}
}

// insert sorts a short list.
func insert(list []Want) {
	for i := 1; i < len(list); i++ {
		x, j := list[i], i
		for ; j > 0 && x.before(&list[j-1]); j-- {
			list[j] = list[j-1]
		}
		list[j] = x
	}
}

// Line moves the first k of the line to the front of the list, in order; the others follow in any
// order.
func Line(list []Want, k int) {
	for k > 0 && len(list) > few {
		n := split(list)
		if n < k {
			Line(list[:n], n)
			list, k = list[n:], k-n
		} else {
			list = list[:n]
		}
	}
	if k > 0 {
		insert(list)
	}
}

// Serve goes along the line and gives each request what it wants if that is left, else nothing. It
// moves the served requests to the front, in any order, and returns their number and the GPUs left;
// the rest of the list is garbage. It sorts only where order decides.
func Serve(list []Want, gpus int) (served, left int) {
	for rest := fitting(list, gpus); len(rest) > 0; {
		n := 0
		n, gpus = prefix(rest, gpus)
		served += copy(list[served:], rest[:n])
		rest = fitting(rest[n:], gpus)
	}
	return served, gpus
}

// fitting keeps the requests that would each fit alone.
func fitting(list []Want, gpus int) []Want {
	fit := list[:0]
	for i := range list {
		if int(list[i].GPUs) <= gpus {
			fit = append(fit, list[i])
		}
	}
	return fit
}

// prefix moves the requests before the first one in line that does not fit to the front, and
// returns their number and the GPUs that they leave.
func prefix(list []Want, gpus int) (n, left int) {
	for len(list)-n > few {
		part := list[n:]
		k := split(part)
		if sum := total(part[:k]); sum <= gpus {
			n, gpus = n+k, gpus-sum
		} else {
			list = list[:n+k]
		}
	}
	insert(list[n:])
	for n < len(list) && int(list[n].GPUs) <= gpus {
		gpus -= int(list[n].GPUs)
		n++
	}
	return n, gpus
}

// total is the sum of a list's requests.
func total(list []Want) (sum int) {
	for i := range list {
		sum += int(list[i].GPUs)
	}
	return sum
}
