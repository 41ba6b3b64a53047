package postgres

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/patchbay-mcp/patchbay/stores/check"
	"github.com/patchbay-mcp/patchbay/stores/internal/examine"
)

// The versions of PostgreSQL that the statements need, and that the tests run, as server_version_num.
const neededVersion, testedVersion = 110000, 150000

// Check examines the server of a URL in the order in which a store connects: the URL, the network,
// TLS, login, version, role, tables, rights, durability, connections, latency and clock. It calls
// report with each finding. Check changes nothing: it neither creates nor upgrades tables. opts may
// be nil. The name that Check returns is the address without the user and password.
func Check(ctx context.Context, url string, opts *Options, report func(check.Finding)) (name string) {
	c := &checker{Checker: examine.Checker{Context: ctx, Report: report}}
	if opts != nil {
		c.store.opts = *opts
	}
	c.store.opts.Schema = cmp.Or(c.store.opts.Schema, DefaultSchema)
	c.Run("url", "read the URL", func(p *examine.Probe) { c.parse(p, url) })
	c.Run("network", "connect to the address", c.dial)
	c.Run("tls", "negotiate TLS", c.handshake)
	c.Run("login", "log in", c.login)
	defer c.close()
	c.Run("version", "read the version and role", c.version)
	c.Run("tables", fmt.Sprintf("read the version of schema %q", c.store.opts.Schema), c.tables)
	c.Run("rights", "read the rights of the user", c.rights)
	c.Run("durability", "read fsync and synchronous_commit", c.durability)
	c.Run("connections", "count the connections", c.connections)
	c.Run("latency", fmt.Sprintf("send a statement %d times", examine.Operations), func(p *examine.Probe) {
		c.Latency(p, cmp.Or(c.store.opts.Timeout, DefaultTimeout), func(ctx context.Context) error {
			return c.conn.Ping(ctx)
		})
	})
	c.Run("clock", "compare the clocks", func(p *examine.Probe) {
		c.Clock(p, "look in the log of the server", func(ctx context.Context) (now time.Time, err error) {
			return now, c.conn.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&now)
		})
	})
	return c.store.server
}

// A checker is one run of [Check].
type checker struct {
	examine.Checker
	store   Store // without a pool
	config  *pgxpool.Config
	conn    *pgx.Conn // after the login
	reached *pgconn.FallbackConfig
	present int  // the version of the tables; 0 without
	pending bool // the tables are absent or old
}

func (c *checker) close() {
	if c.conn != nil {
		ctx, cancel := c.Step()
		defer cancel()
		_ = c.conn.Close(ctx)
	}
}

func (c *checker) parse(p *examine.Probe, url string) {
	var err error
	c.config, err = parse(url, c.store.opts.Connections)
	if err == nil {
		c.store.statements, err = c.store.texts("sql")
	}
	if err != nil {
		p.See("%v", err)
		p.Fail("correct the URL; a password with special characters must be percent-encoded")
		return
	}
	conn := c.config.ConnConfig
	c.store.server = strings.Join(addresses(conn), ", ")
	p.See("address %s, user %s, database %s", c.store.server, conn.User, cmp.Or(conn.Database, conn.User))
}

// attempts returns the addresses that a connection tries, with the first way for each.
func (c *checker) attempts() []*pgconn.FallbackConfig {
	conn := c.config.ConnConfig
	all := append([]*pgconn.FallbackConfig{{Host: conn.Host, Port: conn.Port, TLSConfig: conn.TLSConfig}},
		conn.Fallbacks...)
	return slices.CompactFunc(all, func(a, b *pgconn.FallbackConfig) bool {
		return a.Host == b.Host && a.Port == b.Port
	})
}

func (c *checker) connect(a *pgconn.FallbackConfig) (net.Conn, error) {
	ctx, cancel := c.Step()
	defer cancel()
	network, address := pgconn.NetworkAddress(a.Host, a.Port)
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err == nil {
		err = conn.SetDeadline(time.Now().Add(examine.Timeout))
	}
	return conn, err
}

// dial fails if no address works: the others may be standbys.
func (c *checker) dial(p *examine.Probe) {
	next := "start the server, correct the host and the port of the URL, or open the firewall"
	for _, a := range c.attempts() {
		conn, err := c.connect(a)
		if err != nil {
			p.See("%v", err)
			p.Warn(next)
			continue
		}
		p.See("connected to %s", conn.RemoteAddr())
		c.reached = cmp.Or(c.reached, a)
		_ = conn.Close()
	}
	if c.reached == nil {
		p.Fail(next)
	}
}

// hasPlainText reports whether the URL permits a connection without TLS to the reached address.
func (c *checker) hasPlainText() bool {
	for _, other := range c.config.ConnConfig.Fallbacks {
		if other.TLSConfig == nil && other.Host == c.reached.Host {
			return true
		}
	}
	return c.reached.TLSConfig == nil
}

func (c *checker) handshake(p *examine.Probe) {
	remote := !isLocal(c.reached.Host)
	encrypted, err := c.negotiate(p)
	switch {
	case err != nil:
		p.See("%v", err)
		p.Fail("name the authority of the certificate with sslrootcert=PATH, or use a certificate of " +
			"this host; sslmode=require encrypts without a check of the certificate")
	case !encrypted && !c.hasPlainText():
		p.See("the server does not support TLS")
		p.Fail("set ssl = on at the server; or, in a network that you trust, sslmode=disable in the URL")
	case !encrypted:
		if p.See("the connection is not encrypted"); remote {
			p.Warn("use sslmode=verify-full: others in the network can read the password and the data")
		}
	case remote && c.hasPlainText():
		p.Warn("use sslmode=verify-full: with this sslmode, anybody in the network can turn TLS off")
	case remote && c.isAnyServer():
		p.Warn("use sslmode=verify-full: without it, another machine in the network can pose as the server")
	}
}

// isAnyServer reports whether TLS accepts each certificate.
func (c *checker) isAnyServer() bool {
	config := c.reached.TLSConfig
	return config.InsecureSkipVerify && config.VerifyPeerCertificate == nil
}

// negotiate reports whether a connection is encrypted.
func (c *checker) negotiate(p *examine.Probe) (encrypted bool, err error) {
	if c.reached.TLSConfig == nil {
		return false, nil
	}
	conn, err := c.connect(c.reached)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	if c.config.ConnConfig.SSLNegotiation != "direct" {
		request := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, 8), 80877103) // SSLRequest
		answer := make([]byte, 1)
		if _, err = conn.Write(request); err == nil {
			_, err = io.ReadFull(conn, answer)
		}
		if err != nil || answer[0] != 'S' {
			return false, err
		}
	}
	secure := tls.Client(conn, c.reached.TLSConfig)
	if err := secure.HandshakeContext(c.Context); err != nil {
		return true, err
	}
	seen := "certificate and name of the server accepted"
	switch {
	case c.isAnyServer():
		seen = "certificate of the server not checked"
	case c.reached.TLSConfig.InsecureSkipVerify:
		seen = "certificate of the server accepted, its name not checked"
	}
	p.See("%s, %s", tls.VersionName(secure.ConnectionState().Version), seen)
	return true, nil
}

// nextLogin contains instructions for refused logins, by the code of the error.
var nextLogin = map[string]string{
	"28P01": "correct the user and the password of the URL",
	"28000": "create the user, or allow the user and this address in pg_hba.conf; the log of the server names the rule",
	"3D000": "create the database, or correct its name in the URL",
	"42501": "give the user the right to connect: GRANT CONNECT ON DATABASE",
	"53300": "raise max_connections or the limit of the user, or lower pool_max_conns of the processes",
	"57P03": "wait: the server starts, stops or recovers",
}

func (c *checker) login(p *examine.Probe) {
	ctx, cancel := c.Step()
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, c.config.ConnConfig)
	if err != nil {
		p.See("%v", err)
		next := "look in the log of the server; with target_session_attrs, a server of the URL must accept writes"
		if reply, ok := errors.AsType[*pgconn.PgError](err); ok {
			next = cmp.Or(nextLogin[reply.Code], next)
		}
		p.Fail(next)
		return
	}
	c.conn, c.Connected = conn, true
	with := "with a password"
	if c.config.ConnConfig.Password == "" {
		with = "without a password"
	}
	p.See("logged in as %s %s", conn.Config().User, with)
}

// read reads the single row of a statement. An error ends the check.
func (c *checker) read(p *examine.Probe, op string, args []any, columns ...any) bool {
	ctx, cancel := c.Step()
	defer cancel()
	err := c.conn.QueryRow(ctx, c.store.statements[op], args...).Scan(columns...)
	if err != nil {
		p.See("%v", err)
		p.Fail("look in the log of the server")
	}
	return err == nil
}

func (c *checker) version(p *examine.Probe) {
	var version int
	var standby, readOnly bool
	if !c.read(p, "check server", nil, &version, &standby, &readOnly) {
		return
	}
	p.See("version %d.%d", version/10000, version%10000)
	switch {
	case version < neededVersion:
		p.Fail("use PostgreSQL 15 or later")
	case version < testedVersion:
		p.Warn("use PostgreSQL 15 or later: the store is not tested with older versions")
	}
	switch {
	case standby:
		p.See("the server is a standby")
		p.Fail("use the address of the primary, or all addresses with target_session_attrs=read-write")
	case readOnly:
		p.See("transactions only read")
		p.Fail("set default_transaction_read_only to off for the user and the database")
	}
}

func (c *checker) tables(p *examine.Probe) {
	ctx, cancel := c.Step()
	defer cancel()
	steps, err := c.store.texts("migrations")
	if err == nil {
		err = pgx.BeginTxFunc(ctx, c.conn, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) (err error) {
			c.present, err = c.store.version(ctx, tx, len(steps))
			return err
		})
	}
	c.pending = c.present < len(steps)
	switch {
	case errors.Is(err, ErrNewer):
		p.See("%v", err)
		p.Fail("use the version of the program that upgraded the tables, or a later version")
	case err != nil:
		p.See("%v", err)
		p.Fail("give the user the rights of the user that created the tables")
	case c.present == 0:
		p.See("no tables: the next process creates version %d", len(steps))
	case c.pending:
		p.See("version %d: the next process upgrades the tables to %d; older processes continue", c.present, len(steps))
	default:
		p.See("version %d is current", c.present)
	}
}

func (c *checker) rights(p *examine.Probe) {
	var missing []string
	schema := c.store.opts.Schema
	if !c.read(p, "check rights", []any{schema, c.present == 0, c.pending}, &missing) {
		return
	}
	if len(missing) == 0 {
		p.See("all rights are granted")
		return
	}
	p.See("missing: %s", strings.Join(missing, ", "))
	p.Fail("GRANT the missing rights to the user, or use the user that owns the tables")
}

func (c *checker) durability(p *examine.Probe) {
	var fsync, commit, pages string
	if !c.read(p, "check durability", nil, &fsync, &commit, &pages) {
		return
	}
	p.See("fsync %s, synchronous_commit %s, full_page_writes %s", fsync, commit, pages)
	switch {
	case fsync != "on" || pages != "on":
		p.Warn("set fsync and full_page_writes to on: a crash of the machine can destroy the database")
	case commit == "off":
		p.Warn("set synchronous_commit to on: a crash of the server loses the last changes")
	}
}

func (c *checker) connections(p *examine.Probe) {
	var limit, used, free int
	if !c.read(p, "check connections", nil, &limit, &used, &free) {
		return
	}
	size := int(c.config.MaxConns)
	p.See("%d of %d connections are in use, the user can open %d; a process needs up to %d", used, limit, free, size)
	if free < size {
		p.Warn("raise max_connections or the limit of the user, or lower pool_max_conns in the URL")
	}
}
