package redis

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
)

const (
	// unfinishedBatch is the number of ids that Unfinished reads at once.
	unfinishedBatch = 256
	// expireBatch is the number of tasks that a script deletes at once. The script blocks the
	// server.
	expireBatch = 100
	// taskFields is the number of values of a task in a reply.
	taskFields = 7
)

var (
	scriptTasksCreate = script("tasks", "tasks_create")
	scriptTasksUpdate = script("tasks", "tasks_update")
	scriptTasksDelete = script("tasks", "tasks_delete")
	scriptTasksGet    = script("tasks", "tasks_get")
	scriptTasksList   = script("tasks", "tasks_list")
	scriptTasksExpire = script("tasks", "tasks_expire")

	scriptTasksVersions = script("tasks", "tasks_versions")
	scriptTasksHold     = script("tasks_now", "tasks_hold")
	scriptTasksRenew    = script("tasks_now", "tasks_renew")
)

type taskStore struct {
	*Store
	heads, data, list, open, ends, sums, leases string // keys
}

// Tasks returns the store of the tasks of a server, which any number of processes may use at once.
// All keys of a server are in the same hash slot.
// A store that no process has written to for a year ends. A record is as durable as the append-only
// file of the Redis server.
func (s *Store) Tasks(server string) tasks.SharedStore {
	prefix := s.opts.Prefix + ":{tasks:" + url.PathEscape(server) + "}:"
	return &taskStore{s, prefix + "heads", prefix + "data", prefix + "list", prefix + "open", prefix + "ends",
		prefix + "sums", prefix + "leases"}
}

func (s *taskStore) keys() []string { return []string{s.heads, s.data, s.list, s.open, s.ends, s.sums} }

// timeText returns a text for a time. The texts have the same order as the times.
func timeText(t time.Time) string { return fmt.Sprintf("%016x", uint64(t.UnixMilli())^(1<<63)) }

func millisText(t time.Time) string { return strconv.FormatInt(t.UnixMilli(), 10) }

func (s *taskStore) Create(ctx context.Context, r tasks.Record) error {
	if err := r.Check(); err != nil {
		return err
	}
	return s.change(ctx, "create task", scriptTasksCreate, r.ID, timeText(r.Created), millisText(r.Expires),
		strconv.FormatBool(r.Done), digest(r.Owner), r.Owner, string(r.Data))
}

// change runs a script, and returns the error for the reply of the script.
func (s *taskStore) change(ctx context.Context, op string, lua *rueidis.Lua, args ...string) error {
	reply, err := s.eval(ctx, op, lua, len(args[len(args)-1]), s.keys(), args...)
	if err != nil {
		return err
	}
	switch n, err := reply.AsInt64(); n {
	case 1:
		return err
	case -1:
		return tasks.ErrUnknown
	}
	return tasks.ErrConflict
}

func (s *taskStore) Get(ctx context.Context, owner, id string) (tasks.Record, error) {
	return s.get(ctx, digest(owner), id)
}

func (s *taskStore) get(ctx context.Context, owner, id string) (tasks.Record, error) {
	found, err := s.readTasks(ctx, "read task", scriptTasksGet, id, owner)
	switch {
	case err != nil:
		return tasks.Record{}, err
	case len(found) == 0:
		return tasks.Record{}, tasks.ErrUnknown
	}
	return found[0], nil
}

func (s *taskStore) Update(ctx context.Context, r tasks.Record) error {
	if err := r.Check(); err != nil {
		return err
	}
	return s.change(ctx, "update task", scriptTasksUpdate, r.ID, strconv.FormatUint(r.Version, 10),
		millisText(r.Expires), strconv.FormatBool(r.Done), digest(r.Owner), string(r.Data))
}

func (s *taskStore) Delete(ctx context.Context, owner, id string) error {
	return s.change(ctx, "delete task", scriptTasksDelete, id, digest(owner))
}

func (s *taskStore) List(ctx context.Context, owner string, after tasks.Cursor, limit int) ([]tasks.Record, error) {
	if limit <= 0 {
		return nil, context.Cause(ctx)
	}
	name := digest(owner)
	return s.readTasks(ctx, "list tasks", scriptTasksList, name, name+timeText(after.Created)+after.ID,
		strconv.Itoa(limit), strconv.Itoa(tasks.MaxRecord))
}

func (s *taskStore) readTasks(ctx context.Context, op string, lua *rueidis.Lua,
	args ...string) (found []tasks.Record, err error) {
	reply, err := s.read(ctx, op, lua, s.keys(), args...)
	if err != nil {
		return nil, err
	}
	values, err := reply.AsStrSlice()
	for ; len(values) >= taskFields; values = values[taskFields:] {
		version, err1 := strconv.ParseUint(values[1], 10, 64)
		created, err2 := strconv.ParseUint(values[2], 16, 64)
		expires, err3 := strconv.ParseInt(values[3], 10, 64)
		err = errors.Join(err, err1, err2, err3)
		found = append(found, tasks.Record{
			ID: values[0], Owner: values[5], Version: version, Done: values[4] == "true", Data: []byte(values[6]),
			Created: time.UnixMilli(int64(created ^ (1 << 63))).UTC(), Expires: time.UnixMilli(expires).UTC(),
		})
	}
	return found, err
}

func (s *taskStore) Count(ctx context.Context, owner string) (n int, size int64, err error) {
	return s.count(ctx, digest(owner))
}

func (s *taskStore) CountAll(ctx context.Context) (n int, size int64, err error) {
	return s.count(ctx, "all")
}

func (s *taskStore) count(ctx context.Context, name string) (n int, size int64, err error) {
	reply, err := s.do(ctx, "count tasks", 0, func(ctx context.Context) rueidis.RedisResult {
		return s.client.Do(ctx, s.client.B().Hmget().Key(s.sums).Field(name+":n", name+":b").Build())
	})
	if err != nil {
		return 0, 0, err
	}
	sums, err := reply.ToArray()
	if err != nil || len(sums) != 2 || sums[0].IsNil() {
		return 0, 0, err
	}
	number, err1 := sums[0].AsInt64()
	size, err2 := sums[1].AsInt64()
	return int(number), size, errors.Join(err1, err2)
}

func (s *taskStore) Unfinished(ctx context.Context) iter.Seq2[tasks.Record, error] {
	return func(yield func(tasks.Record, error) bool) {
		for after := "-"; ; {
			ids, err := s.unfinishedIDs(ctx, after)
			if err != nil {
				yield(tasks.Record{}, err)
			}
			if err != nil || len(ids) == 0 {
				return
			}
			after = "(" + ids[len(ids)-1]
			for _, id := range ids {
				r, err := s.get(ctx, "", id)
				if errors.Is(err, tasks.ErrUnknown) || r.Done {
					continue // the task changed meanwhile
				}
				if !yield(r, err) || err != nil {
					return
				}
			}
		}
	}
}

func (s *taskStore) unfinishedIDs(ctx context.Context, after string) ([]string, error) {
	reply, err := s.do(ctx, "list unfinished tasks", 0, func(ctx context.Context) rueidis.RedisResult {
		return s.client.Do(ctx, s.client.B().Zrangebylex().Key(s.open).Min(after).Max("+").
			Limit(0, unfinishedBatch).Build())
	})
	if err != nil {
		return nil, err
	}
	return reply.AsStrSlice()
}

func (s *taskStore) DeleteExpired(ctx context.Context, now time.Time, limit int) (int, error) {
	total := 0
	for total < limit {
		batch := min(limit-total, expireBatch)
		reply, err := s.eval(ctx, "delete expired tasks", scriptTasksExpire, 0, s.keys(), millisText(now),
			strconv.Itoa(batch))
		if err != nil {
			return total, err
		}
		n, err := reply.AsInt64()
		if total += int(n); err != nil || int(n) < batch {
			return total, err
		}
	}
	return total, nil
}

func (s *taskStore) Hold(ctx context.Context, holder string, d time.Duration) error {
	_, err := s.eval(ctx, "hold lease", scriptTasksHold, 0, []string{s.leases}, holder,
		strconv.FormatInt(d.Milliseconds(), 10))
	return err
}

func (s *taskStore) Renew(ctx context.Context, holder string, d time.Duration) ([]string, error) {
	reply, err := s.eval(ctx, "renew lease", scriptTasksRenew, 0, []string{s.leases}, holder,
		strconv.FormatInt(d.Milliseconds(), 10))
	if err != nil {
		return nil, err
	}
	holders, err := reply.AsStrSlice()
	if err == nil && len(holders) == 0 {
		err = tasks.ErrLeaseLost
	}
	return holders, err
}

func (s *taskStore) Versions(ctx context.Context, ids []string) ([]uint64, error) {
	reply, err := s.eval(ctx, "read versions of tasks", scriptTasksVersions, 0, s.keys(), ids...)
	if err != nil {
		return nil, err
	}
	texts, err := reply.AsStrSlice()
	versions := make([]uint64, len(texts))
	for i, text := range texts {
		version, failed := strconv.ParseUint(text, 10, 64)
		versions[i], err = version, errors.Join(err, failed)
	}
	return versions, err
}
