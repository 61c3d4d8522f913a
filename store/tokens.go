package store

import (
	"context"
	"database/sql"
	"errors"
)

// tokenSchema has the tokens of the HTTP interface. A token itself is never stored, only its hash.
const tokenSchema = `
CREATE TABLE IF NOT EXISTS tokens (
	id INTEGER PRIMARY KEY AUTOINCREMENT,
	hash TEXT NOT NULL UNIQUE,
	name TEXT NOT NULL, user TEXT NOT NULL, role TEXT NOT NULL,
	created INTEGER NOT NULL, expires INTEGER NOT NULL);
`

// Token authenticates a caller over TCP. Times are Unix nanoseconds; Expires 0: never.
type Token struct {
	ID               int64
	Hash             string // of the text, which is shown once
	Name, User, Role string
	Created, Expires int64
}

// PutToken stores a new token and returns its number.
func (t *Tx) PutToken(k *Token) (int64, error) {
	r, err := t.result(`INSERT INTO tokens (hash, name, user, role, created, expires) VALUES (?,?,?,?,?,?)`,
		k.Hash, k.Name, k.User, k.Role, k.Created, k.Expires)
	if err != nil {
		return 0, err
	}
	return r.LastInsertId()
}

// DeleteToken removes a token, which is refused from then on.
func (t *Tx) DeleteToken(id int64) error { return t.exec(`DELETE FROM tokens WHERE id = ?`, id) }

// Tokens lists the tokens, the oldest first.
func (s *Store) Tokens(ctx context.Context) (list []Token, err error) {
	rows, err := s.read.QueryContext(ctx, tokenColumns+`ORDER BY id`)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var k Token
		if err := rows.Scan(&k.ID, &k.Hash, &k.Name, &k.User, &k.Role, &k.Created, &k.Expires); err != nil {
			return nil, err
		}
		list = append(list, k)
	}
	return list, rows.Err()
}

const tokenColumns = `SELECT id, hash, name, user, role, created, expires FROM tokens `

// Token returns the token with a hash; ErrNotFound: there is none.
func (s *Store) Token(ctx context.Context, hash string) (*Token, error) {
	var k Token
	err := s.read.QueryRowContext(ctx, tokenColumns+`WHERE hash = ?`, hash).
		Scan(&k.ID, &k.Hash, &k.Name, &k.User, &k.Role, &k.Created, &k.Expires)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, ErrNotFound
	}
	return &k, err
}
