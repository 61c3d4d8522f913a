// Package csvfile reads tables.
package csvfile

import (
	"encoding/csv"
	"fmt"
	"io"
	"os"
)

// Read returns the rows of a CSV file, the head, where it has one, first; a file without
// any row is an error.
func Read(path string) ([][]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err == nil && len(rows) == 0 {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return rows, nil
}
