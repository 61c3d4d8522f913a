// Package token makes the secrets by which callers are known. Only their hashes are stored.
package token

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
)

// Prefix marks a text as a secret of Muster, for people and for programs that look for leaked ones.
const Prefix = "muster_"

// New is a new token, and its hash.
func New() (text, hash string) {
	text = Prefix + Secret()
	return text, Hash(text)
}

// Secret is a new random text that cannot be guessed.
func Secret() string { return rand.Text() + rand.Text() }

// Hash is the SHA-256 of a secret, in 64 hexadecimal digits.
func Hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
