// Package postgres contains stores in PostgreSQL for state that must be durable and that several
// processes share: the state of hosts, which includes the keys of a gateway, logins, request state
// and its single use, the records of authorization servers, tasks, and webhook subscriptions.
//
//	store, err := postgres.Open(ctx, url, nil)
//	if err != nil {
//		return err
//	}
//	defer store.Close()
//	taskServer := tasks.NewServer(server, &tasks.Options{Store: store.Tasks("press")})
//
// The URL takes the form that libpq defines, and may name several servers:
//
//   - postgres://user:password@host:5432/database?sslrootcert=/etc/ssl/ca.pem
//   - postgres://host1,host2/database?target_session_attrs=read-write
//
// Settings that the URL does not contain come from the variables of libpq, such as PGPASSWORD.
// A connection to another machine uses TLS and checks the certificate, as with sslmode=verify-full,
// unless the URL or the variable PGSSLMODE contains an sslmode. [Check] finds out why a store does
// not work.
//
// # Tables
//
// [Open] creates and upgrades the tables in [Options.Schema]. The first user needs the right to
// create a schema in the database. Each process deletes expired rows, once a minute and in small
// batches. Entries of the state of hosts do not expire; their number is limited, as is the size of
// all keys and values. Webhook subscriptions do not expire either: their sender deletes them. The package
// does not encrypt values.
//
// # Failures
//
// Each operation may take [DefaultTimeout], plus a second for each 16 MiB of data, including the
// wait for a connection. Then the error is [ErrUnavailable]. Errors never contain the password.
package postgres
