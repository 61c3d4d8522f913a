package store

import (
	"context"
	"database/sql"
	"errors"
)

// serviceSchema has the services that run, and what was measured of them. data is the business of the packages above.
const serviceSchema = `
CREATE TABLE IF NOT EXISTS services (
	name TEXT PRIMARY KEY, data BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS service_known (
	name TEXT PRIMARY KEY, data BLOB NOT NULL) WITHOUT ROWID;
`

// PutService stores a service, or its new form.
func (t *Tx) PutService(name string, data []byte) error {
	return t.exec(`INSERT INTO services (name, data) VALUES (?,?)
		ON CONFLICT (name) DO UPDATE SET data = excluded.data`, name, data)
}

// DeleteService removes a service, and what is known of it.
func (t *Tx) DeleteService(name string) error {
	return errors.Join(t.exec(`DELETE FROM services WHERE name = ?`, name),
		t.exec(`DELETE FROM service_known WHERE name = ?`, name))
}

// PutServiceKnown stores what was measured of a service.
func (t *Tx) PutServiceKnown(name string, data []byte) error {
	return t.exec(`INSERT INTO service_known (name, data) VALUES (?,?)
		ON CONFLICT (name) DO UPDATE SET data = excluded.data`, name, data)
}

// ServiceKnown is what was measured of a service; nil: nothing yet.
func (s *Store) ServiceKnown(ctx context.Context, name string) (data []byte, err error) {
	err = s.read.QueryRowContext(ctx, `SELECT data FROM service_known WHERE name = ?`, name).Scan(&data)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return data, err
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
