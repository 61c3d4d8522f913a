// Package view is the read-only part of Muster's interface: jobs, why they wait, nodes, queues, usage. It serves
// any driver, this machine or a cluster, so that the same command line and the same dashboard read both.
package view

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/muster-gpu/muster/api"
	"github.com/muster-gpu/muster/cluster"
	"github.com/muster-gpu/muster/show"
)

// Source is what the routes read.
type Source interface {
	Now() time.Time
	// Scheduling names the policy and the placer.
	Scheduling(context.Context) (policy, placer string, err error)
	Job(ctx context.Context, id int) (api.Job, error)
	// Jobs lists jobs, the latest first.
	Jobs(context.Context, api.Filter) ([]api.Job, error)
	Why(ctx context.Context, id int) (api.Why, error)
	History(ctx context.Context, id int) ([]api.Moment, error)
	Samples(ctx context.Context, id int) (api.Samples, error)
	Nodes(context.Context) ([]api.Node, error)
	Queues(context.Context) ([]api.Queue, error)
	Overview(context.Context) (api.Overview, error)
	Usage(ctx context.Context, by string, since time.Time) (api.Usage, error)
	// PlanMoves says which moves would let waiting jobs start, or empty nodes.
	PlanMoves(context.Context, *api.MovesRequest) ([]api.Moves, error)
	// Watch begins to watch: changed holds a value when something changed, and take returns which jobs, or that
	// there are many.
	Watch() (changed <-chan struct{}, take func() (jobs []int, many bool), stop func())
}

// Who is the caller of a read-only route.
type Who interface {
	// Me is the caller as the server knows it.
	Me() api.Me
	// Owns reports whether the caller may see a user's jobs in full; on a cluster a job's user is its namespace.
	Owns(user string) bool
}

// Info is the server's description of itself.
type Info struct {
	Version   string `json:"version"`
	Policy    string `json:"policy"`
	Placer    string `json:"placer"`
	Simulated bool   `json:"simulated,omitempty" doc:"The GPUs are only played"`
	// NotEnforced lists the limits that are not enforced on jobs.
	NotEnforced []string `json:"not_enforced,omitempty" doc:"What jobs are not kept to here, and why"`
	URL         string   `json:"url,omitempty" doc:"Where the server listens besides the Unix socket"`
	Cluster     bool     `json:"cluster,omitempty" doc:"It schedules a Kubernetes cluster, and shows it; what can be changed is changed there"`
}

// Options connect the routes to a server.
type Options struct {
	Source Source
	// Caller is the caller of a request; an error is the answer.
	Caller func(context.Context) (Who, error)
	// Problem turns an error of the source into an answer.
	Problem func(error) error
	// Info describes the server, without policy and placer.
	Info func() Info
}

// Routes are those that Register registers, for lists of the roles that routes require.
var Routes = []string{"GET /v1/me", "GET /v1/info", "GET /v1/jobs", "GET /v1/jobs/{id}", "GET /v1/jobs/{id}/why",
	"GET /v1/jobs/{id}/history",
	"GET /v1/jobs/{id}/samples", "GET /v1/nodes", "GET /v1/queues", "GET /v1/overview", "GET /v1/usage",
	"GET /v1/moves"}

type routes struct{ Options }

type none struct{}

type id struct {
	ID int `path:"id" minimum:"1" doc:"Number of the job"`
}

type body[T any] struct{ Body T }

// Register registers the read-only operations, except Events, which is a stream.
func Register(a huma.API, opt Options) {
	r := &routes{opt}
	get(a, r, "me", "/v1/me", "Who the server takes the caller for",
		func(_ context.Context, who Who, _ *none) (api.Me, error) { return who.Me(), nil })
	get(a, r, "info", "/v1/info", "The server itself", r.info)
	get(a, r, "jobs", "/v1/jobs", "List jobs", r.list)
	get(a, r, "job", "/v1/jobs/{id}", "One job", func(ctx context.Context, who Who, in *id) (api.Job, error) {
		j, err := r.Source.Job(ctx, in.ID)
		return Shown(who, j), err
	})
	get(a, r, "why", "/v1/jobs/{id}/why", "Why a job waits, and until when",
		func(ctx context.Context, who Who, in *id) (api.Why, error) {
			w, err := r.Source.Why(ctx, in.ID)
			w.Job = Shown(who, w.Job)
			return w, err
		})
	get(a, r, "history", "/v1/jobs/{id}/history", "What happened to a job",
		func(ctx context.Context, _ Who, in *id) ([]api.Moment, error) { return r.Source.History(ctx, in.ID) })
	get(a, r, "samples", "/v1/jobs/{id}/samples", "What was measured of a job",
		func(ctx context.Context, _ Who, in *id) (api.Samples, error) { return r.Source.Samples(ctx, in.ID) })
	get(a, r, "nodes", "/v1/nodes", "The nodes and their GPUs",
		func(ctx context.Context, _ Who, _ *none) ([]api.Node, error) { return r.Source.Nodes(ctx) })
	get(a, r, "queues", "/v1/queues", "The queues and what they hold",
		func(ctx context.Context, _ Who, _ *none) ([]api.Queue, error) { return r.Source.Queues(ctx) })
	get(a, r, "overview", "/v1/overview", "The GPUs, queues and jobs in one answer", r.overview)
	get(a, r, "moves", "/v1/moves", "Which moves of running jobs would let waiting ones start, or empty nodes",
		func(ctx context.Context, _ Who, in *movesInput) ([]api.Moves, error) {
			return r.Source.PlanMoves(ctx, &api.MovesRequest{Job: in.Job, Compact: in.Compact})
		})
	get(a, r, "usage", "/v1/usage", "What was used, wasted, and how good expected starts were", r.usage)
}

// get registers one operation; its caller is known before it runs.
func get[In, Out any](a huma.API, r *routes, id, path, summary string, f func(context.Context, Who, *In) (Out, error)) {
	huma.Register(a, huma.Operation{OperationID: id, Method: http.MethodGet, Path: path, Summary: summary},
		func(ctx context.Context, in *In) (*body[Out], error) {
			who, err := r.Caller(ctx)
			if err != nil {
				return nil, err
			}
			out, err := f(ctx, who, in)
			if err != nil {
				return nil, r.problem(err)
			}
			return &body[Out]{out}, nil
		})
}

// problem leaves answers of these routes as they are.
func (r *routes) problem(err error) error {
	var s huma.StatusError
	if errors.As(err, &s) {
		return s
	}
	return r.Problem(err)
}

func (r *routes) info(ctx context.Context, _ Who, _ *none) (info Info, err error) {
	info = r.Info()
	info.Policy, info.Placer, err = r.Source.Scheduling(ctx)
	return info, err
}

type movesInput struct {
	Job     int    `query:"job" minimum:"1" doc:"One waiting job; absent: whichever it helps"`
	Compact string `query:"compact" enum:"usable,nodes" doc:"Instead, moves that empty nodes, for either gain"`
}

type listInput struct {
	User   string   `query:"user"`
	Queue  string   `query:"queue"`
	Name   string   `query:"name"`
	Search string   `query:"search" maxLength:"200" doc:"Part of the name, the user or the queue, or the number"`
	State  []string `query:"state,explode" doc:"States, each by itself or several with commas; active stands for all that are not over"`
	Since  string   `query:"since" doc:"Only jobs that ended after this time (RFC 3339), or have not ended"`
	Before int      `query:"before" minimum:"0" doc:"Only jobs with a smaller number: the next page"`
	Limit  int      `query:"limit" minimum:"0" maximum:"10000" default:"1000"`
	Brief  bool     `query:"brief" doc:"Without environment, command, script and arguments"`
	Arrays bool     `query:"arrays" doc:"Waiting elements of an array of which there is nothing else to say come as one job with the numbers of the others in elements; limit counts each"`
}

// List is a page of a list of jobs.
type List struct {
	Jobs []api.Job `json:"jobs" doc:"The latest first"`
	Next int       `json:"next,omitempty" doc:"Give it as before to get the next page; absent: there is none"`
}

func (r *routes) list(ctx context.Context, who Who, in *listInput) (out List, err error) {
	f := api.Filter{User: in.User, Queue: in.Queue, Name: in.Name, Search: in.Search, Before: in.Before,
		Limit: in.Limit, Arrays: in.Arrays}
	for _, st := range strings.Split(strings.Join(in.State, ","), ",") {
		switch st {
		case "":
		case "active":
			f.States = append(f.States, show.Live...)
		default:
			f.States = append(f.States, st)
		}
	}
	slices.Sort(f.States)
	if in.Since != "" {
		at, err := time.Parse(time.RFC3339, in.Since)
		if err != nil {
			return out, huma.Error422UnprocessableEntity("since: write a time such as 2026-01-31T12:00:00Z")
		}
		f.Since = at.UnixNano()
	}
	if out.Jobs, err = r.Source.Jobs(ctx, f); err != nil {
		return out, err
	}
	n, lowest := 0, 0
	for i := range out.Jobs {
		j := &out.Jobs[i]
		if *j = Shown(who, *j); in.Brief {
			Brief(j)
		}
		n, lowest = n+1+len(j.Elements), j.ID
		if len(j.Elements) > 0 {
			lowest = j.Elements[len(j.Elements)-1][0]
		}
	}
	if in.Limit > 0 && n == in.Limit {
		out.Next = lowest
	}
	return out, nil
}

func (r *routes) overview(ctx context.Context, who Who, _ *none) (api.Overview, error) {
	o, err := r.Source.Overview(ctx)
	for _, list := range [][]api.Job{o.Running, o.Waiting} {
		for i := range list {
			list[i] = Shown(who, list[i])
			Brief(&list[i])
		}
	}
	return o, err
}

type usageInput struct {
	By    string `query:"by" enum:"user,queue,job,model" default:"user" doc:"What to add up by; job is the jobs' name, model what they compute"`
	Since string `query:"since" default:"30d" doc:"A time (RFC 3339), or how long ago, such as 30d or 12h"`
}

func (r *routes) usage(ctx context.Context, who Who, in *usageInput) (u api.Usage, err error) {
	since, err := sinceTime(in.Since, r.Source.Now())
	if err != nil {
		return u, err
	}
	u, err = r.Source.Usage(ctx, in.By, since)
	me := who.Me()
	for i := range u.Waste {
		if !me.Admin && u.Waste[i].User != me.User {
			u.Waste[i].Name = ""
		}
	}
	return u, err
}

// sinceTime reads a time, or how long ago it was.
func sinceTime(text string, now time.Time) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	d, err := cluster.ParseDuration(text)
	if err != nil || d < 0 {
		return time.Time{}, huma.Error422UnprocessableEntity(
			"since: write a time such as 2026-01-31T12:00:00Z, or how long ago, such as 30d")
	}
	return now.Add(-d), nil
}

// Shown is a job as the caller may see it. What other users run is hidden, and the environment, which may hold
// secrets, is for its owner and admins only.
func Shown(who Who, j api.Job) api.Job {
	if private(&j) && !who.Owns(j.User) {
		j.Submission.Script, j.Submission.Command, j.Submission.Args = "", nil, nil
		j.Submission.Dir, j.Submission.Input, j.Submission.Output, j.Submission.Error = "", "", "", ""
		j.StdOut, j.StdErr, j.Submission.Comment = "", "", ""
		j.Submission.Trial, j.Metrics = nil, nil
		j.Tasks = nil
		j.Progress = j.Progress.Unplaced()
	}
	if j.Submission.Env != nil {
		if me := who.Me(); !me.Admin && j.User != me.User {
			j.Submission.Env = nil
		}
	}
	return j
}

// private reports whether a job has parts that not everybody may see. In lists of a cluster it has none, so the
// owner need not be looked up.
func private(j *api.Job) bool {
	s := &j.Submission
	return s.Script != "" || s.Command != nil || s.Args != nil || s.Dir != "" || s.Input != "" || s.Output != "" ||
		s.Error != "" || s.Comment != "" ||
		j.StdOut != "" || j.StdErr != "" || j.Tasks != nil || s.Trial != nil || j.Metrics != nil ||
		j.Progress != nil && j.Progress.Checkpoint != ""
}

// Brief leaves out what is long and useless in a list.
func Brief(j *api.Job) {
	s := &j.Submission
	s.Env, s.Command, s.Script, s.Args = nil, nil, "", nil
}
