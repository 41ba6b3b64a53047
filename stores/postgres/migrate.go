package postgres

import (
	"context"
	"embed"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
)

// migrations contains the files 0001.sql, 0002.sql and so on, each the step to a version. The word
// {schema} stands for the quoted schema. A released file must not change.
//
//go:embed migrations/*.sql
var migrations embed.FS

// migrate creates or upgrades the tables in a single transaction. A lock lets a single process at a
// time migrate a schema.
func (s *Store) migrate(ctx context.Context) error {
	files, err := migrations.ReadDir("migrations")
	if err != nil {
		return err
	}
	mode := pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}
	err = pgx.BeginTxFunc(ctx, s.pool, mode, func(tx pgx.Tx) error {
		version, err := s.version(ctx, tx, len(files))
		if err != nil || version == len(files) {
			return err
		}
		lock := int64(binary.BigEndian.Uint64(digest("migrate", s.opts.Schema)))
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", lock); err != nil {
			return err
		}
		// Another process may have migrated the schema meanwhile.
		if version, err = s.version(ctx, tx, len(files)); err != nil {
			return err
		}
		return s.upgrade(ctx, tx, version, files[version:])
	})
	if err != nil && !errors.Is(err, ErrNewer) {
		return s.failure(fmt.Sprintf("create or upgrade schema %q", s.opts.Schema), err)
	}
	return err
}

// upgrade runs files that follow a version.
func (s *Store) upgrade(ctx context.Context, tx pgx.Tx, version int, files []fs.DirEntry) error {
	exists, statements := false, []string{}
	err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)", s.opts.Schema).Scan(&exists)
	if err != nil {
		return err
	}
	if !exists { // a user who may not create schemas can use an existing schema
		statements = append(statements, "CREATE SCHEMA {schema}")
	}
	for _, file := range files {
		text, err := migrations.ReadFile("migrations/" + file.Name())
		if err != nil {
			return err
		}
		statements = append(statements, string(text))
	}
	for _, statement := range statements {
		if _, err := tx.Exec(ctx, s.tables.Replace(statement)); err != nil {
			return err
		}
	}
	_, err = tx.Exec(ctx, s.tables.Replace("UPDATE {schema}.version SET version = $1"), version+len(files))
	return err
}

// version returns the version of the tables, 0 if they do not exist, or [ErrNewer]. It reads the
// catalog because to_regclass can miss a table that another process created during the transaction.
func (s *Store) version(ctx context.Context, tx pgx.Tx, known int) (version int, err error) {
	exists := false
	err = tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_tables WHERE schemaname = $1 AND tablename = 'version')",
		s.opts.Schema).Scan(&exists)
	if err != nil || !exists {
		return 0, err
	}
	err = tx.QueryRow(ctx, s.tables.Replace("SELECT version FROM {schema}.version")).Scan(&version)
	if err == nil && version > known {
		err = fmt.Errorf("%w: %s: schema %q has version %d, this program supports at most %d: use a newer program",
			ErrNewer, s.server, s.opts.Schema, version, known)
	}
	return version, err
}

const (
	// sweepEvery is the time between sweeps. A process also sweeps when it opens the store.
	sweepEvery = time.Minute
	// sweepBatch limits the rows that a statement deletes, so that no statement takes long.
	// sweepBatches limits the statements for a table in a sweep.
	sweepBatch, sweepBatches = 1000, 1000
)

// sweeps delete expired rows. They pass over rows that another process locks.
var sweeps = []string{
	`DELETE FROM {schema}.logins WHERE key IN (SELECT key FROM {schema}.logins
		WHERE expires <= now() AND locked <= now() ORDER BY expires LIMIT $1 FOR UPDATE SKIP LOCKED)`,
}

// sweepUntil deletes expired rows until ctx ends. An error ends the sweep of a table until the next
// time: meanwhile, operations ignore the rows.
func (s *Store) sweepUntil(ctx context.Context) {
	for {
		for _, statement := range sweeps {
			for range sweepBatches {
				n, err := s.query(ctx, "delete expired rows", 0, nil, statement, sweepBatch)
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
