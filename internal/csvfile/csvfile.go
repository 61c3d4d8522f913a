// Package csvfile reads CSV files.
package csvfile

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
)

// Read returns the rows of a CSV file, including a header if there is one; a file without any row is an error.
func Read(path string) ([][]string, error) {
	rows, _, err := ReadLines(path)
	return rows, err
}

// ReadLines is Read, and also returns the line of the file on which each row begins, from 1: empty lines are no
// rows, and a quoted field may span several.
func ReadLines(path string) (rows [][]string, lines []int, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	r := csv.NewReader(f)
	for {
		var row []string
		if row, err = r.Read(); err != nil {
			break
		}
		line, _ := r.FieldPos(0)
		rows, lines = append(rows, row), append(lines, line)
	}
	if errors.Is(err, io.EOF) {
		if err = nil; len(rows) == 0 {
			err = io.ErrUnexpectedEOF
		}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return rows, lines, nil
}
