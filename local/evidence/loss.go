//go:build linux

package evidence

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-gpu/muster/store"
)

// Task is a task that runs.
type Task struct{ Job, Run, Rank int }

// Left is what is there of a job, or of one run of it, that the database does not know.
type Left struct {
	Job, Run int // Run 0: all runs
	Live     []Task
}

// Loss is what the database of a state lacks.
type Loss struct {
	dir      string
	problems []string
	Unusable bool // the database cannot be gone on with
	Left     []Left
	Highest  int // job number that was given
}

// Database is the path of the database of a state.
func Database(dir string) string { return filepath.Join(dir, "muster.db") }

// Find compares a state's database with its surroundings; nil: it lacks nothing that they know of. Nothing is changed.
func Find(ctx context.Context, dir string, sound bool) (*Loss, error) {
	l := &Loss{dir: dir}
	mark, err := store.ReadMark(Database(dir))
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	view, err := store.OpenView(Database(dir))
	if err == nil && sound {
		err = view.Sound()
	}
	if view != nil {
		defer view.Close()
	}
	switch {
	case errors.Is(err, store.ErrNotFound):
		if mark.ID != "" || len(numbers(l.jobs())) > 0 {
			l.lacks("the database is missing or empty")
			l.Unusable = true
		}
	case errors.Is(err, store.ErrDamaged):
		l.lacks("the database is damaged: %v", err)
		l.Unusable = true
	case err != nil:
		return nil, nil // to open it says what is wrong
	default:
		err := mark.Covers(view.Mark)
		if err != nil {
			l.lacks("%v", strings.TrimPrefix(err.Error(), store.ErrLost.Error()+": "))
		}
		l.Unusable = err != nil && view.Mark.ID != mark.ID
	}
	l.Highest = max(mark.Job, mark.Reserved)
	known := store.Mark{}
	if view != nil && !l.Unusable {
		known = view.Mark
	}
	l.missing(mark, known)
	if err := l.inspect(ctx, view, known.Job); err != nil {
		return nil, err
	}
	if len(l.problems) == 0 {
		return nil, nil
	}
	return l, nil
}

func (l *Loss) jobs() string { return filepath.Join(l.dir, "jobs") }

func (l *Loss) lacks(format string, args ...any) {
	l.problems = append(l.problems, fmt.Sprintf(format, args...))
}

func (l *Loss) missing(mark, known store.Mark) {
	switch first, last := known.Job+1, mark.Job; {
	case last == first:
		l.lacks("job %d was accepted and is not in it", last)
	case last > first:
		l.lacks("jobs %d to %d were accepted and are not in it", first, last)
	}
}

// inspect goes through the folders of jobs. A run's number is stored before anything of it is made, so a
// folder or a task of a later run than the stored one shows that the database is older.
func (l *Loss) inspect(ctx context.Context, view *store.View, highest int) error {
	var unknown, tasks []string
	for _, job := range numbers(l.jobs()) {
		l.Highest = max(l.Highest, job)
		live := l.live(job)
		if job <= highest && len(live) == 0 && len(l.problems) == 0 {
			continue
		}
		last := 0
		if job <= highest {
			var err error
			if last, err = lastRun(ctx, view, job); err != nil {
				return err
			}
		}
		for _, left := range l.later(job, last, live) {
			l.Left = append(l.Left, left)
			if left.Run == 0 {
				unknown = append(unknown, strconv.Itoa(job))
			}
			for _, t := range left.Live {
				tasks = append(tasks, fmt.Sprintf("job %d, run %d, task %d", t.Job, t.Run, t.Rank))
			}
		}
	}
	if len(unknown) > 0 {
		l.lacks("there are folders of jobs that it does not know: %s", some(unknown, ", "))
	}
	if len(tasks) > 0 {
		l.lacks("tasks run that it does not know: %s", some(tasks, "; "))
	}
	return nil
}

// later is what is there of a job beyond its last known run; 0: the job is not known.
func (l *Loss) later(job, last int, live []Task) (list []Left) {
	if last == 0 {
		return []Left{{Job: job, Live: live}}
	}
	for _, run := range numbers(filepath.Join(l.jobs(), strconv.Itoa(job))) {
		if run <= last {
			continue
		}
		mine := slices.DeleteFunc(slices.Clone(live), func(t Task) bool { return t.Run != run })
		list = append(list, Left{Job: job, Run: run, Live: mine})
	}
	return list
}

// live lists the tasks of a job whose locks are held.
func (l *Loss) live(job int) (list []Task) {
	dir := filepath.Join(l.jobs(), strconv.Itoa(job))
	for _, run := range numbers(dir) {
		locks, err := filepath.Glob(filepath.Join(dir, strconv.Itoa(run), "*.lock"))
		if err != nil {
			continue
		}
		for _, path := range locks {
			rank, err := strconv.Atoi(strings.TrimSuffix(filepath.Base(path), ".lock"))
			if err == nil && held(path) {
				list = append(list, Task{job, run, rank})
			}
		}
	}
	return list
}

// lastRun is the number of a stored job's last run; 0: the job is not stored, or did not run.
func lastRun(ctx context.Context, view *store.View, job int) (int, error) {
	row, err := view.Job(ctx, job)
	if errors.Is(err, store.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	var info struct {
		Run int `json:"run"`
	}
	if err := json.Unmarshal(row.Data, &info); err != nil {
		return 0, fmt.Errorf("stored job %d: %w", job, err)
	}
	return info.Run, nil
}

// shown is how many of a list an error names.
const shown = 20

func some(list []string, between string) string {
	if more := len(list) - shown; more > 0 {
		return strings.Join(list[:shown], between) + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(list, between)
}

// Error says what is missing and how to go on.
func (l *Loss) Error() string {
	db := Database(l.dir)
	return fmt.Sprintf("%s: the state is not what it was:\n  - %s\nNothing was changed, and no job was ended: running jobs continue. Either put back what was there (%s and %s-wal), "+
		"or start once with muster serve --accept-loss: what the database does not know is set aside in %s, its tasks are ended, and job numbers go on above %d.",
		db, strings.Join(l.problems, "\n  - "), db, filepath.Base(db), filepath.Join(l.dir, "lost-TIME"), l.Highest)
}

// SetAside makes the folder for what is lost and copies the database there, or moves it there where it cannot
// be gone on with.
func (l *Loss) SetAside(now time.Time) (aside string, err error) {
	aside = filepath.Join(l.dir, "lost-"+now.UTC().Format("20060102T150405Z"))
	for n := 2; ; n++ {
		err = os.MkdirAll(filepath.Dir(aside), 0o711)
		if err = errors.Join(err, os.Mkdir(aside, 0o700)); !errors.Is(err, os.ErrExist) || n > 100 {
			break
		}
		aside = strings.TrimSuffix(aside, "-"+strconv.Itoa(n-1)) + "-" + strconv.Itoa(n)
	}
	if err != nil {
		return "", err
	}
	db := Database(l.dir)
	if err := errors.Join(copyTo(store.MarkPath(db), aside), store.Accept(db, l.Highest)); err != nil {
		return "", err
	}
	if !l.Unusable { // it goes on without what its WAL cannot give any more
		return aside, copyTo(db+"-wal", aside)
	}
	for _, path := range []string{db, db + "-wal", db + "-shm"} {
		if err := move(path, aside); err != nil {
			return "", err
		}
	}
	return aside, nil
}

// MoveLeft moves the folders of what is left, whose tasks have ended.
func (l *Loss) MoveLeft(aside string, left Left) error {
	parts := []string{"jobs", strconv.Itoa(left.Job)}
	if left.Run > 0 {
		parts = append(parts, strconv.Itoa(left.Run))
	}
	path := filepath.Join(parts...)
	to := filepath.Join(aside, filepath.Dir(path))
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	return move(filepath.Join(l.dir, path), to)
}

func move(path, dir string) error {
	err := os.Rename(path, filepath.Join(dir, filepath.Base(path)))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

func copyTo(path, dir string) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, filepath.Base(path)), text, 0o600)
}
