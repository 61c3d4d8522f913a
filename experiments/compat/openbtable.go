package compat

import (
	"math"
	"strconv"
)

// hundredths is used milli-GPU in per cent of the devices, rounded to two decimals by the exact
// decimal value of the double (Python's round).
func hundredths(used, devices int64) float64 {
	num, den := used*100, devices*10
	if 2*(num%den) == den { // the double decides the direction
		v, _ := strconv.ParseFloat(strconv.FormatFloat(float64(used)/float64(devices)/10, 'f', 2, 64), 64)
		return v
	}
	return float64((2*num+den)/(2*den)) / 100
}

// cells averages the records of each column; empty columns take those of their neighbours (section
// 9).
func cells(columns [][]float64) (out Cells) {
	for k := range out {
		list := columns[k]
		if len(list) == 0 {
			if k > 0 {
				list = append(list, columns[k-1]...)
			}
			list = append(list, columns[k+1]...)
		}
		if len(list) == 0 {
			out[k] = math.NaN()
			continue
		}
		out[k] = math.RoundToEven(pairwise(list)/float64(len(list))*100) / 100
	}
	return out
}

// pairwise adds like numpy, which decides the last digit: eight interleaved sums up to 128 numbers,
// halves beyond.
func pairwise(v []float64) (sum float64) {
	switch n := len(v); {
	case n < 8:
		for _, x := range v {
			sum += x
		}
		return sum
	case n <= 128:
		var r [8]float64
		copy(r[:], v)
		i := 8
		for ; i+8 <= n; i += 8 {
			for k := range r {
				r[k] += v[i+k]
			}
		}
		sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]))
		for ; i < n; i++ {
			sum += v[i]
		}
		return sum
	default:
		half := n / 2
		half -= half % 8
		return pairwise(v[:half]) + pairwise(v[half:])
	}
}
