package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
)

// noon is the creation time of test records.
var noon = time.Date(2026, 7, 28, 12, 0, 0, int(123*time.Millisecond), time.UTC)

// task returns a test record.
func task(owner, id string) tasks.Record {
	return tasks.Record{Owner: owner, ID: id, Created: noon, Expires: noon.Add(time.Hour),
		Data: []byte("data of " + id)}
}

// create adds records.
func create(ctx context.Context, s tasks.Store, records ...tasks.Record) error {
	for _, r := range records {
		if err := s.Create(ctx, r); err != nil {
			return fmt.Errorf("create %s: %w", r.ID, err)
		}
	}
	return nil
}

// wantRecord returns an error if the stored record differs.
func wantRecord(ctx context.Context, s tasks.Store, want tasks.Record) error {
	got, err := s.Get(ctx, want.Owner, want.ID)
	if err != nil {
		return fmt.Errorf("get %s: %w", want.ID, err)
	}
	return same(got, want)
}

func same(got, want tasks.Record) error {
	switch {
	case got.Owner != want.Owner || got.ID != want.ID:
		return fmt.Errorf("got %q of %q, want %q of %q", got.ID, got.Owner, want.ID, want.Owner)
	case !got.Created.Equal(want.Created):
		return fmt.Errorf("task %s was created %v, want %v", got.ID, got.Created, want.Created)
	case !got.Expires.Equal(want.Expires):
		return fmt.Errorf("task %s expires %v, want %v", got.ID, got.Expires, want.Expires)
	case got.Done != want.Done:
		return fmt.Errorf("task %s: done is %t, want %t", got.ID, got.Done, want.Done)
	case got.Version != want.Version:
		return fmt.Errorf("task %s has version %d, want %d", got.ID, got.Version, want.Version)
	case !bytes.Equal(got.Data, want.Data):
		return fmt.Errorf("task %s has %d bytes %.60q, want %d bytes %.60q", got.ID, len(got.Data), got.Data,
			len(want.Data), want.Data)
	}
	return nil
}

// wantError returns an error if got is not want.
func wantError(what string, got, want error) error {
	if errors.Is(got, want) {
		return nil
	}
	return fmt.Errorf("%s returned %s, want %w", what, fmt.Sprint(got), want)
}

// wantIDs returns an error if the list of an owner has other ids.
func wantIDs(ctx context.Context, s tasks.Store, owner string, ids ...string) error {
	all, err := s.List(ctx, owner, tasks.Cursor{}, 1000)
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	if got := idsOf(all); !slices.Equal(got, ids) {
		return fmt.Errorf("the list of %q is %.500q, want %.500q", owner, got, ids)
	}
	return nil
}

// wantCount returns an error if Count or CountAll differ from own and all, or from the listed
// bytes.
func wantCount(ctx context.Context, s tasks.Store, owner string, own, all int) error {
	got, ownBytes, err := s.Count(ctx, owner)
	if err != nil || got != own {
		return fmt.Errorf("the count of %q is %d, %s; want %d", owner, got, fmt.Sprint(err), own)
	}
	got, allBytes, err := s.CountAll(ctx)
	if err != nil || got != all {
		return fmt.Errorf("the count of all is %d, %s; want %d", got, fmt.Sprint(err), all)
	}
	want, err := bytesOf(ctx, s, owner)
	if err != nil || ownBytes != want {
		return fmt.Errorf("the bytes of %q are %d, %s; want %d", owner, ownBytes, fmt.Sprint(err), want)
	}
	if own == all && allBytes != want || allBytes < want {
		return fmt.Errorf("the bytes of all are %d, and those of %q are %d", allBytes, owner, want)
	}
	return nil
}

// bytesOf returns the size of the Data of an owner's records.
func bytesOf(ctx context.Context, s tasks.Store, owner string) (total int64, err error) {
	for after := (tasks.Cursor{}); ; {
		page, err := s.List(ctx, owner, after, 1000)
		if err != nil || len(page) == 0 {
			return total, err
		}
		for _, r := range page {
			total += int64(len(r.Data))
			after = tasks.Cursor{Created: r.Created, ID: r.ID}
		}
	}
}

// wantUnfinished returns an error if Unfinished has other ids.
func wantUnfinished(ctx context.Context, s tasks.Store, ids ...string) error {
	var got []string
	for r, err := range s.Unfinished(ctx) {
		if err != nil {
			return fmt.Errorf("unfinished: %w", err)
		}
		if err := wantRecord(ctx, s, r); err != nil {
			return fmt.Errorf("unfinished: %w", err)
		}
		got = append(got, r.ID)
	}
	slices.Sort(got)
	slices.Sort(ids)
	if !slices.Equal(got, ids) {
		return fmt.Errorf("unfinished are %.500q, want %.500q", got, ids)
	}
	return nil
}

func idsOf(records []tasks.Record) []string {
	var ids []string
	for _, r := range records {
		ids = append(ids, r.ID)
	}
	return ids
}

// owners are unusual keys of principals: empty, prefixes of each other, with separators, zero bytes
// and invalid UTF-8, and longer than the keys of many databases.
var owners = []string{
	"", "a", "a\x00", "a\x00b", "ab", "A", "\x00", "\x00\x00", "/", "a/b", "a b", "\xff", "\xff\xff", "é", "e\u0301",
	"https://issuer.example\nalice", strings.Repeat("long", 20_000), strings.Repeat("long", 20_000) + "er",
}
