package store

import (
	"database/sql"
	"errors"
	"fmt"
	"math"

	"github.com/muster-gpu/muster/internal/oldkeys"
)

// metaNames is the key under which the version of the key names (oldkeys) is stored; where it is missing, it is
// 1.
const metaNames = "names"

// texts lists the records that are rewritten when keys get other names. Segments of the journal and their steps
// stay as they are: each segment says which names it has.
var texts = []struct {
	table, column, id string
	where             string
	kind              oldkeys.Kind
}{
	{"jobs", "data", "id", "", oldkeys.Info},
	{"arrays", "data", "first", " AND length(data) > 0", oldkeys.Array},
	{"usage", "data", "job", "", oldkeys.Usage},
	{"meta", "value", "key", " AND key = 'engine'", oldkeys.Snapshot},
}

// rename renames the keys of all records to those that this program reads, in one transaction.
func (s *Store) rename() (err error) {
	names := 1
	err = s.write.QueryRow(`SELECT value FROM meta WHERE key = ?`, metaNames).Scan(&names)
	switch {
	case err != nil && !errors.Is(err, sql.ErrNoRows):
		return err
	case names > oldkeys.Current:
		return oldkeys.ErrNewer
	case names == oldkeys.Current:
		return nil
	}
	tx, err := s.write.Begin()
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, tx.Rollback())
		}
	}()
	for i := range texts {
		t := &texts[i]
		update := `UPDATE ` + t.table + ` SET ` + t.column + ` = ? WHERE ` + t.id + ` = ?`
		query := `SELECT ` + t.id + `, ` + t.column + ` FROM ` + t.table + ` WHERE ` + t.id + ` > ?` + t.where
		err = eachRow(tx, query+` ORDER BY `+t.id+` LIMIT 1000`, func(id any, text []byte) error {
			now, err := oldkeys.Translate(t.kind, names, text)
			if err != nil {
				return fmt.Errorf("%s %v: %w", t.table, id, err)
			}
			var value any = now
			if t.table == "meta" { // its column is text
				value = string(now)
			}
			_, err = tx.Exec(update, value, id)
			return err
		})
		if err != nil {
			return err
		}
	}
	_, err = tx.Exec(`INSERT OR REPLACE INTO meta VALUES ('version', ?), (?, ?)`, version, metaNames, oldkeys.Current)
	if err != nil {
		return err
	}
	return tx.Commit()
}

// eachRow calls f for each row of a query after an id, a thousand rows at a time.
func eachRow(tx *sql.Tx, query string, f func(id any, text []byte) error) error {
	type row struct {
		id   any
		text []byte
	}
	for after := any(int64(math.MinInt64)); ; {
		rows, err := tx.Query(query, after)
		if err != nil {
			return err
		}
		var list []row
		for rows.Next() {
			var r row
			if err := rows.Scan(&r.id, &r.text); err != nil {
				return errors.Join(err, rows.Close())
			}
			list = append(list, r)
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil || len(list) == 0 {
			return err
		}
		for _, r := range list {
			if err := f(r.id, r.text); err != nil {
				return err
			}
			after = r.id
		}
	}
}
