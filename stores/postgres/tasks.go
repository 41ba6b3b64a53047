package postgres

import (
	"cmp"
	"context"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
)

// unfinishedBatch limits the tasks that Unfinished reads at once.
const unfinishedBatch = 256

type taskStore struct {
	*Store
	server []byte
}

// Tasks returns the store of the tasks of a server, which any number of processes may use at once.
// The server deletes its expired tasks; the store also deletes expired tasks that no server changed
// for a year. The package does not encrypt tasks.
func (s *Store) Tasks(server string) tasks.SharedStore { return taskStore{s, digest(server)} }

func (s taskStore) Create(ctx context.Context, r tasks.Record) error {
	if err := r.Check(); err != nil {
		return err
	}
	n, err := s.number(ctx, "create task", len(r.Data), s.server, []byte(r.ID), digest(r.Owner), []byte(r.Owner),
		r.Created.UnixMilli(), r.Expires.UnixMilli(), r.Done, append([]byte{}, r.Data...))
	if err == nil && n == 0 {
		err = tasks.ErrConflict
	}
	return err
}

func (s taskStore) Get(ctx context.Context, owner, id string) (tasks.Record, error) {
	found, err := s.read(ctx, "read task", s.server, []byte(id), digest(owner))
	if err != nil || len(found) == 0 {
		return tasks.Record{}, cmp.Or(err, tasks.ErrUnknown)
	}
	return found[0], nil
}

func (s taskStore) Update(ctx context.Context, r tasks.Record) error {
	if err := r.Check(); err != nil {
		return err
	}
	n, err := s.number(ctx, "update task", len(r.Data), s.server, []byte(r.ID), digest(r.Owner),
		int64(r.Version), // versions are positive int64s
		r.Expires.UnixMilli(), r.Done, append([]byte{}, r.Data...))
	switch {
	case err != nil || n == 1:
		return err
	case n == 0:
		return tasks.ErrConflict
	}
	return tasks.ErrUnknown
}

func (s taskStore) Delete(ctx context.Context, owner, id string) error {
	return s.query(ctx, "delete task", 0, nil, s.server, []byte(id), digest(owner))
}

func (s taskStore) List(ctx context.Context, owner string, after tasks.Cursor, limit int) ([]tasks.Record, error) {
	return s.read(ctx, "list tasks", s.server, tasks.MaxRecord, digest(owner),
		after.Created.UnixMilli(), []byte(after.ID), max(limit, 0))
}

// read returns the tasks of a statement.
func (s taskStore) read(ctx context.Context, op string, args ...any) (found []tasks.Record, err error) {
	err = s.query(ctx, op, tasks.MaxRecord, func(row pgx.Rows) error {
		var r tasks.Record
		var id, owner []byte
		var created, expires int64
		err := row.Scan(&id, &owner, &r.Version, &created, &expires, &r.Done, &r.Data)
		r.ID, r.Owner = string(id), string(owner)
		r.Created, r.Expires = time.UnixMilli(created).UTC(), time.UnixMilli(expires).UTC()
		found = append(found, r)
		return err
	}, args...)
	return found, err
}

func (s taskStore) Count(ctx context.Context, owner string) (n int, size int64, err error) {
	return s.count(ctx, digest(owner))
}

func (s taskStore) CountAll(ctx context.Context) (n int, size int64, err error) {
	return s.count(ctx, nil)
}

func (s taskStore) count(ctx context.Context, owner []byte) (n int, size int64, err error) {
	err = s.query(ctx, "count tasks", 0, func(row pgx.Rows) error { return row.Scan(&n, &size) }, s.server, owner)
	return n, size, err
}

func (s taskStore) Unfinished(ctx context.Context) iter.Seq2[tasks.Record, error] {
	return func(yield func(tasks.Record, error) bool) {
		for after := ""; ; {
			found, err := s.read(ctx, "list unfinished tasks", s.server, tasks.MaxRecord,
				[]byte(after), unfinishedBatch)
			if err != nil {
				yield(tasks.Record{}, err)
			}
			if err != nil || len(found) == 0 {
				return
			}
			after = found[len(found)-1].ID
			for _, r := range found {
				if !yield(r, nil) {
					return
				}
			}
		}
	}
}

func (s taskStore) DeleteExpired(ctx context.Context, now time.Time, limit int) (int, error) {
	return s.number(ctx, "delete expired tasks", 0, s.server, now.UnixMilli(), max(limit, 0))
}

func (s taskStore) Hold(ctx context.Context, holder string, d time.Duration) error {
	return s.query(ctx, "hold lease", 0, nil, s.server, []byte(holder), d)
}

func (s taskStore) Renew(ctx context.Context, holder string, d time.Duration) (holders []string, err error) {
	err = s.query(ctx, "renew lease", 0, func(row pgx.Rows) error {
		var holder []byte
		err := row.Scan(&holder)
		holders = append(holders, string(holder))
		return err
	}, s.server, []byte(holder), d)
	if err == nil && len(holders) == 0 {
		err = tasks.ErrLeaseLost
	}
	return holders, err
}

func (s taskStore) Versions(ctx context.Context, ids []string) ([]uint64, error) {
	keys, versions := make([][]byte, len(ids)), make([]uint64, len(ids))
	for i, id := range ids {
		keys[i] = []byte(id)
	}
	err := s.query(ctx, "list versions of tasks", 0, func(row pgx.Rows) error {
		var number int
		var version uint64
		err := row.Scan(&number, &version)
		if err == nil {
			versions[number-1] = version
		}
		return err
	}, s.server, keys)
	return versions, err
}
