package storetest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
)

// patience is how long a check waits for the clock of a store.
const patience = 30 * time.Second

// A store is a store under test. Its methods check the results, and panic with a violation if the
// store breaks its contract.
type store struct {
	tasks.Store
	ctx context.Context
}

type violation struct{ error }

func (s *store) fail(format string, args ...any) { panic(violation{fmt.Errorf(format, args...)}) }

func (s *store) run(check func(s *store)) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case violation:
			err = p.error
		default:
			panic(p)
		}
	}()
	check(s)
	return nil
}

// concurrently calls f for 0 to n-1 in goroutines, and reports the first violation or panic.
func (s *store) concurrently(n int, f func(i int)) {
	begin, errs := make(chan struct{}), make(chan error, n)
	for i := range n {
		go func() {
			<-begin
			defer func() {
				switch p := recover().(type) {
				case nil:
					errs <- nil
				case violation:
					errs <- p.error
				default:
					errs <- fmt.Errorf("panic: %v", p)
				}
			}()
			f(i)
		}()
	}
	close(begin)
	var first error
	for range n {
		first = cmp.Or(first, <-errs)
	}
	s.noError("concurrent calls", first)
}

func (s *store) noError(what string, err error) {
	if err != nil {
		s.fail("%s: %w", what, err)
	}
}

func (s *store) wantError(what string, got, want error) {
	if !errors.Is(got, want) {
		s.fail("%s returned %v, want %w", what, got, want)
	}
}

func (s *store) mustCreate(records ...tasks.Record) {
	for _, r := range records {
		s.noError("create "+r.ID, s.Create(s.ctx, r))
	}
}

// mustUpdate returns r with its new version.
func (s *store) mustUpdate(r tasks.Record) tasks.Record {
	s.noError(fmt.Sprintf("update %s from version %d to %d bytes", r.ID, r.Version, len(r.Data)), s.Update(s.ctx, r))
	r.Version++
	return r
}

func (s *store) mustDelete(owner, id string) { s.noError("delete "+id, s.Delete(s.ctx, owner, id)) }

func (s *store) mustList(owner string, after tasks.Cursor, limit int) []tasks.Record {
	page, err := s.List(s.ctx, owner, after, limit)
	s.noError("list", err)
	if len(page) > limit {
		s.fail("%d records were listed, the limit was %d", len(page), limit)
	}
	return page
}

// mustDeleteExpired calls DeleteExpired, which must delete want records.
func (s *store) mustDeleteExpired(now time.Time, limit, want int) {
	n, err := s.DeleteExpired(s.ctx, now, limit)
	if err != nil || n != want {
		s.fail("at %v DeleteExpired returned %d, %v; want %d", now, n, err, want)
	}
}

func (s *store) shared() tasks.SharedStore {
	shared, _ := s.Store.(tasks.SharedStore)
	return shared
}

func (s *store) hold(holder string, d time.Duration) {
	s.noError("Hold of "+holder, s.shared().Hold(s.ctx, holder, d))
}

func (s *store) mustRenew(holder string, d time.Duration) []string {
	holders, err := s.shared().Renew(s.ctx, holder, d)
	s.noError("Renew of "+holder, err)
	slices.Sort(holders)
	return holders
}

func (s *store) wantHolders(holder string, d time.Duration, want ...string) {
	if got := s.mustRenew(holder, d); !slices.Equal(got, want) {
		s.fail("Renew of %s returned %q, want %q", holder, got, want)
	}
}

func (s *store) wantRecord(want tasks.Record) {
	got, err := s.Get(s.ctx, want.Owner, want.ID)
	s.noError("get "+want.ID, err)
	if describe(got) != describe(want) || got.Owner != want.Owner || !bytes.Equal(got.Data, want.Data) {
		s.fail("got %s, want %s", describe(got), describe(want))
	}
}

func describe(r tasks.Record) string {
	return fmt.Sprintf("task %q of %.40q, created %v, expires %v, done %t, version %d, %d bytes of data %.60q",
		r.ID, r.Owner, r.Created.UTC(), r.Expires.UTC(), r.Done, r.Version, len(r.Data), r.Data)
}

func (s *store) wantUnknown(owner, id string) {
	got, err := s.Get(s.ctx, owner, id)
	s.wantError(fmt.Sprintf("get %q of %.20q", id, owner), err, tasks.ErrUnknown)
	if got.ID != "" || got.Data != nil {
		s.fail("get %q of %.20q returned a record with its error", id, owner)
	}
}

func (s *store) wantIDs(owner string, ids ...string) {
	if got := idsOf(s.mustList(owner, tasks.Cursor{}, 1000)); !slices.Equal(got, ids) {
		s.fail("the list of %q is %.500q, want %.500q", owner, got, ids)
	}
}

// wantCount checks Count and CountAll: their records, and that their bytes equal the listed bytes.
func (s *store) wantCount(owner string, own, all int) {
	got, ownBytes, err := s.Count(s.ctx, owner)
	if err != nil || got != own {
		s.fail("the count of %q is %d, %v; want %d", owner, got, err, own)
	}
	got, allBytes, err := s.CountAll(s.ctx)
	if err != nil || got != all {
		s.fail("the count of all is %d, %v; want %d", got, err, all)
	}
	want := int64(0)
	s.pages(owner, 1000, func(page []tasks.Record) {
		for _, r := range page {
			want += int64(len(r.Data))
		}
	})
	if ownBytes != want {
		s.fail("the bytes of %q are %d, want %d", owner, ownBytes, want)
	}
	if own == all && allBytes != want || allBytes < want {
		s.fail("the bytes of all are %d, and those of %q are %d", allBytes, owner, want)
	}
}

// pages lists all records of an owner in pages of limit, and calls f with each.
func (s *store) pages(owner string, limit int, f func(page []tasks.Record)) (ids []string) {
	for after := (tasks.Cursor{}); ; {
		page := s.mustList(owner, after, limit)
		if len(page) == 0 {
			return ids
		}
		if ids = append(ids, idsOf(page)...); len(ids) > 1000 {
			s.fail("the list has no end")
		}
		last := page[len(page)-1]
		after = tasks.Cursor{Created: last.Created, ID: last.ID}
		if f != nil {
			f(page)
		}
	}
}

func (s *store) unfinished() (all []tasks.Record) {
	for r, err := range s.Unfinished(s.ctx) {
		if err != nil {
			s.fail("Unfinished: %w", err)
		}
		all = append(all, r)
	}
	return all
}

func (s *store) wantUnfinished(ids ...string) {
	all := s.unfinished()
	for _, r := range all {
		s.wantRecord(r)
	}
	got := idsOf(all)
	slices.Sort(got)
	slices.Sort(ids)
	if !slices.Equal(got, ids) {
		s.fail("unfinished are %.500q, want %.500q", got, ids)
	}
}

func idsOf(records []tasks.Record) []string {
	var ids []string
	for _, r := range records {
		ids = append(ids, r.ID)
	}
	return ids
}

var noon = time.Date(2026, 7, 28, 12, 0, 0, int(123*time.Millisecond), time.UTC)

// task returns a test record, with its version after Create.
func task(owner, id string) tasks.Record {
	return tasks.Record{Owner: owner, ID: id, Created: noon, Expires: noon.Add(time.Hour), Version: 1,
		Data: []byte("data of " + id)}
}

// done returns a finished record that expires at that time.
func done(owner, id string, expires time.Time) tasks.Record {
	r := task(owner, id)
	r.Done, r.Expires = true, expires
	return r
}

// pattern returns data without repetition.
func pattern(size int, seed byte) []byte {
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(i) ^ byte(i>>8) ^ byte(i>>16) ^ seed
	}
	return data
}

// owners are unusual keys of principals: empty, prefixes of each other, with separators, zero bytes
// and invalid UTF-8, and longer than the keys of many databases.
var owners = []string{
	"", "a", "a\x00", "a\x00b", "ab", "A", "\x00", "\x00\x00", "/", "a/b", "a b", "\xff", "\xff\xff", "é", "e\u0301",
	"https://issuer.example\nalice", strings.Repeat("long", 20_000), strings.Repeat("long", 20_000) + "er",
}
