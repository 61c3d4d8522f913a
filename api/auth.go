package api

import "time"

// The roles; each may also do what the ones before it may.
const (
	RoleUser     = "user"     // own jobs
	RoleOperator = "operator" // all jobs; nodes
	RoleAdmin    = "admin"    // tokens, rules, the journal
)

// Roles lists the roles, the least first.
var Roles = []string{RoleUser, RoleOperator, RoleAdmin}

// Me is the caller as the server knows it.
type Me struct {
	User  string `json:"user"`
	Role  string `json:"role" enum:"user,operator,admin"`
	Admin bool   `json:"admin"`
	// ReadOnly means that nothing can be changed here: the server shows a cluster, whose jobs and nodes are
	// changed with Kubernetes' own tools.
	ReadOnly bool   `json:"read_only,omitempty" doc:"Nothing can be changed through this server: it shows a cluster"`
	CSRF     string `json:"csrf,omitempty" doc:"In a browser: to be sent as X-Muster-CSRF with every change"`
}

// Token is a token in a list. Its text is shown once, when it is created.
type Token struct {
	ID      int64      `json:"id"`
	Name    string     `json:"name,omitempty" maxLength:"100" doc:"What it is for"`
	User    string     `json:"user"`
	Role    string     `json:"role" enum:"user,operator,admin"`
	Created time.Time  `json:"created"`
	Expires *time.Time `json:"expires,omitempty" doc:"Absent: never"`
	Token   string     `json:"token,omitempty" doc:"The token itself; shown only in the answer that creates it"`
}

// NewToken requests a token.
type NewToken struct {
	Name string   `json:"name,omitempty" maxLength:"100" doc:"What it is for"`
	User string   `json:"user,omitempty" doc:"Whose jobs it may touch; the caller's if empty. Only admins make tokens for others"`
	Role string   `json:"role,omitempty" enum:"user,operator,admin" doc:"user if empty; at most the caller's own"`
	For  Duration `json:"for,omitempty" doc:"How long it is valid; 90 days if 0"`
}
