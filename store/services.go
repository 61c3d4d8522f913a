package store

import (
	"context"
	"errors"
)

// serviceSchema has the services that run. data is the business of the packages above.
const serviceSchema = `
CREATE TABLE IF NOT EXISTS services (
	name TEXT PRIMARY KEY, data BLOB NOT NULL) WITHOUT ROWID;
`

// PutService stores a service, or its new form.
func (t *Tx) PutService(name string, data []byte) error {
	return t.exec(`INSERT INTO services (name, data) VALUES (?,?)
		ON CONFLICT (name) DO UPDATE SET data = excluded.data`, name, data)
}

// DeleteService removes a service.
func (t *Tx) DeleteService(name string) error {
	return t.exec(`DELETE FROM services WHERE name = ?`, name)
}

// Services lists the services' data by name.
func (s *Store) Services(ctx context.Context) (list [][]byte, err error) {
	rows, err := s.read.QueryContext(ctx, `SELECT data FROM services ORDER BY name`)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var data []byte
		if err := rows.Scan(&data); err != nil {
			return nil, err
		}
		list = append(list, data)
	}
	return list, rows.Err()
}
