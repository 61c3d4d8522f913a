//go:build linux

package server

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/internal/token"
	"github.com/muster-gpu/muster/store"
)

// tokenFor is how long a token is valid unless the request says otherwise.
const tokenFor = 90 * 24 * time.Hour

// tokensEach is how many tokens one user can have, unless an admin makes them.
const tokensEach = 100

type tokenInput struct{ Body api.NewToken }

// tokens registers the operations on tokens.
func (s *Server) tokens(a huma.API) {
	huma.Register(a, huma.Operation{OperationID: "create-token", Method: http.MethodPost, Path: "/v1/tokens",
		Summary: "Make a token; the answer is the only one that shows it", DefaultStatus: http.StatusCreated},
		s.createToken)
	huma.Register(a, huma.Operation{OperationID: "tokens", Method: http.MethodGet, Path: "/v1/tokens",
		Summary: "List tokens: admins all, others their own"},
		func(ctx context.Context, _ *none) (*struct{ Body []api.Token }, error) {
			list, err := s.listTokens(ctx)
			return &struct{ Body []api.Token }{list}, err
		})
	huma.Register(a, huma.Operation{OperationID: "revoke-token", Method: http.MethodDelete, Path: "/v1/tokens/{id}",
		Summary: "Revoke a token; browsers that it let in are out"}, s.revokeToken)
}

func (s *Server) createToken(ctx context.Context, in *tokenInput) (*struct{ Body api.Token }, error) {
	who, err := caller(ctx)
	if err != nil {
		return nil, err
	}
	k := store.Token{Name: in.Body.Name, User: in.Body.User, Role: in.Body.Role, Created: s.m.Now().UnixNano()}
	if k.User == "" {
		k.User = who.User.Name
	}
	if k.Role == "" {
		k.Role = api.RoleUser
	}
	switch {
	case k.User != who.User.Name && !who.Admin:
		return nil, huma.Error403Forbidden("only admins make tokens for others")
	case !who.may(k.Role):
		return nil, huma.Error403Forbidden(
			fmt.Sprintf("a token of the role %s is more than your own, %s", k.Role, who.Role))
	case in.Body.For < 0:
		return nil, huma.Error422UnprocessableEntity("for: a time span such as 30d")
	}
	if err := s.roomForToken(ctx, who); err != nil {
		return nil, err
	}
	span := time.Duration(in.Body.For)
	if span == 0 {
		span = tokenFor
	}
	k.Expires = s.m.Now().Add(span).UnixNano()
	var text string
	text, k.Hash = token.New()
	ctx, cancel := context.WithTimeout(ctx, commitWait)
	defer cancel()
	if k.ID, err = s.m.Audit().AddToken(ctx, k); err != nil {
		return nil, problem(err)
	}
	out := shownToken(&k)
	out.Token = text
	return &struct{ Body api.Token }{out}, nil
}

// roomForToken says why a user may not have another token, if so.
func (s *Server) roomForToken(ctx context.Context, who *Caller) error {
	if who.Admin {
		return nil
	}
	list, err := s.listTokens(ctx)
	if err != nil || len(list) < tokensEach {
		return err
	}
	return huma.Error429TooManyRequests(
		fmt.Sprintf("you have %d tokens, the most for one user: muster token revoke removes those that are not needed",
			len(list)))
}

func shownToken(k *store.Token) api.Token {
	t := api.Token{ID: k.ID, Name: k.Name, User: k.User, Role: k.Role, Created: time.Unix(0, k.Created).UTC()}
	if k.Expires > 0 {
		at := time.Unix(0, k.Expires).UTC()
		t.Expires = &at
	}
	return t
}

// listTokens lists the tokens that the caller may revoke.
func (s *Server) listTokens(ctx context.Context) ([]api.Token, error) {
	who, err := caller(ctx)
	if err != nil {
		return nil, err
	}
	all, err := s.m.Audit().Tokens(ctx)
	if err != nil {
		return nil, problem(err)
	}
	list := []api.Token{}
	for i := range all {
		if who.Admin || all[i].User == who.User.Name && who.may(all[i].Role) {
			list = append(list, shownToken(&all[i]))
		}
	}
	return list, nil
}

func (s *Server) revokeToken(ctx context.Context, in *struct {
	ID int64 `path:"id" minimum:"1" doc:"Number of the token"`
}) (*none, error) {
	list, err := s.listTokens(ctx)
	if err != nil {
		return nil, err
	}
	for i := range list {
		if list[i].ID != in.ID {
			continue
		}
		within, cancel := context.WithTimeout(ctx, commitWait)
		defer cancel()
		if err := s.m.Audit().RemoveToken(within, in.ID); err != nil {
			return nil, problem(err)
		}
		s.sessions.end(func(se *session) bool { return se.who.token == in.ID })
		return &none{}, nil
	}
	return nil, huma.Error404NotFound(fmt.Sprintf("there is no token %d that is yours to revoke", in.ID))
}
