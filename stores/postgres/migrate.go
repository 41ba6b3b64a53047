package postgres

import (
	"cmp"
	"context"
	"embed"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// files contains a statement in each file of the folder sql. In the folder migrations, the files
// 0001.sql, 0002.sql and so on are the steps between versions; a released step must not change. The
// word {schema} stands for the quoted schema.
//
//go:embed migrations/*.sql sql/*.sql
var files embed.FS

// texts returns the files of a folder by their names: "read entry" is the name of read-entry.sql.
func (s *Store) texts(folder string) (map[string]string, error) {
	all := map[string]string{}
	names, err := files.ReadDir(folder)
	for _, file := range names {
		text, failed := files.ReadFile(folder + "/" + file.Name())
		err = cmp.Or(err, failed)
		name := strings.ReplaceAll(strings.TrimSuffix(file.Name(), ".sql"), "-", " ")
		all[name] = strings.ReplaceAll(string(text), "{schema}", pgx.Identifier{s.opts.Schema}.Sanitize())
	}
	return all, err
}

// migrate creates or upgrades the tables in a single transaction. A lock lets a single process at a
// time migrate a schema.
func (s *Store) migrate(ctx context.Context) error {
	steps, err := s.texts("migrations")
	if err != nil {
		return err
	}
	mode := pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}
	err = pgx.BeginTxFunc(ctx, s.pool, mode, func(tx pgx.Tx) error {
		version, err := s.version(ctx, tx, len(steps))
		if err != nil || version == len(steps) {
			return err
		}
		lock := int64(binary.BigEndian.Uint64(digest("migrate", s.opts.Schema)))
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", lock); err != nil {
			return err
		}
		// Another process may have migrated the schema meanwhile.
		if version, err = s.version(ctx, tx, len(steps)); err != nil {
			return err
		}
		for ; version < len(steps); version++ {
			if _, err := tx.Exec(ctx, steps[fmt.Sprintf("%04d", version+1)]); err != nil {
				return err
			}
		}
		_, err = tx.Exec(ctx, s.statements["set version"], version)
		return err
	})
	if err != nil && !errors.Is(err, ErrNewer) {
		return s.failure(fmt.Sprintf("create or upgrade schema %q", s.opts.Schema), err)
	}
	return err
}

// version returns the version of the tables, 0 if they do not exist, or [ErrNewer].
func (s *Store) version(ctx context.Context, tx pgx.Tx, known int) (version int, err error) {
	exists := false
	err = tx.QueryRow(ctx, s.statements["find version"], s.opts.Schema).Scan(&exists)
	if err != nil || !exists {
		return 0, err
	}
	err = tx.QueryRow(ctx, s.statements["read version"]).Scan(&version)
	if err == nil && version > known {
		err = fmt.Errorf("%w: %s: schema %q has version %d, this program supports at most %d: use a newer program",
			ErrNewer, s.server, s.opts.Schema, version, known)
	}
	return version, err
}

const (
	// sweepEvery is the time between sweeps. A process also sweeps when it opens the store.
	sweepEvery = time.Minute
	// sweepBatch limits the rows of a statement, and sweepBatches the statements of a table.
	sweepBatch, sweepBatches = 1000, 1000
	// sweepSize gives a statement 16 more seconds: its rows may be large.
	sweepSize = 256 << 20
)

// sweep deletes expired rows until ctx ends. An error ends the sweep of a table until the next time:
// meanwhile, operations ignore the rows.
func (s *Store) sweep(ctx context.Context) {
	for {
		for _, op := range []string{
			"sweep states", "sweep uses", "sweep records", "sweep logins", "sweep tasks", "sweep leases",
		} {
			for range sweepBatches {
				n, err := s.number(ctx, op, sweepSize, sweepBatch)
				if err != nil || n < sweepBatch {
					break
				}
			}
		}
		select {
		case <-time.After(sweepEvery/2 + rand.N(sweepEvery)):
		case <-ctx.Done():
			return
		}
	}
}
