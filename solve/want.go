package solve

// Want is somebody who wants so many GPUs, and its place in a line: the highest
// worth first, then the least since, then the least number. No two numbers of a list
// are equal, and no worth is NaN.
type Want struct {
	Worth    float64
	Since    int64
	At, GPUs int32
}

// before is the order of the line.
func (w *Want) before(o *Want) bool {
	if w.Worth != o.Worth {
		return w.Worth > o.Worth
	}
	if w.Since != o.Since {
		return w.Since < o.Since
	}
	return w.At < o.At
}

// few is up to how many are sorted by insertion.
const few = 12

// split has those who come before one of the list, or are it, come first, and says how many they are: at
// least one, and fewer than all. The list is longer than few.
func split(list []Want) int {
	mid, last := len(list)/2, len(list)-1
	for _, x := range [3][2]int{{0, mid}, {mid, last}, {0, mid}} { // the median of three is in the middle
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

// Line has the first k of a list come first, in order; the others follow in any.
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

// Serve gives each of a line what it wants, if there is still as much, else nothing. Those who got
// it come first then, in any order, and it returns how many they are and what is
// left; what follows them is of no use any more. Nobody is put in order whom that
// does not decide about.
func Serve(list []Want, gpus int) (served, left int) {
	for rest := fitting(list, gpus); len(rest) > 0; {
		n := 0
		n, gpus = prefix(rest, gpus)
		served += copy(list[served:], rest[:n])
		rest = fitting(rest[n:], gpus)
	}
	return served, gpus
}

// fitting keeps those of a list of whom each by itself wants no more than there is.
func fitting(list []Want, gpus int) []Want {
	fit := list[:0]
	for i := range list {
		if int(list[i].GPUs) <= gpus {
			fit = append(fit, list[i])
		}
	}
	return fit
}

// prefix has those come first who come before the first in line for whom there is not
// enough, and says how many they are and what they leave.
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

// total is what all of a list want.
func total(list []Want) (sum int) {
	for i := range list {
		sum += int(list[i].GPUs)
	}
	return sum
}
