package postgres

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// errURL does not contain the URL, which may contain a password.
var errURL = errors.New("postgres: invalid URL: must have the form " +
	"postgres://user:password@host:port/database?sslmode=verify-full, with special characters percent-encoded")

// parse returns the settings of a pool. A connection to another machine uses TLS and checks the
// certificate, unless the operator chose an sslmode: the default of libpq would try TLS first, and
// then send everything in plain text.
func parse(text string, connections int) (*pgxpool.Config, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" { // not only variables of the environment
		return nil, errURL
	}
	config, err := pgxpool.ParseConfig(text)
	if file, ok := errors.AsType[*fs.PathError](err); ok { // of a certificate or a key
		return nil, fmt.Errorf("postgres: invalid URL: %w", file)
	}
	if err != nil {
		return nil, errURL
	}
	query := u.Query()
	if !query.Has("sslmode") && !query.Has("ssl") && os.Getenv("PGSSLMODE") == "" && sendsPlainText(config.ConnConfig) {
		query.Set("sslmode", "verify-full")
		u.RawQuery = query.Encode()
		if config, err = pgxpool.ParseConfig(u.String()); err != nil {
			return nil, errURL
		}
	}
	if connections != 0 || !query.Has("pool_max_conns") {
		config.MaxConns = int32(cmp.Or(connections, DefaultConnections))
		config.MinConns = min(config.MinConns, config.MaxConns)
	}
	if !query.Has("connect_timeout") {
		config.ConnConfig.ConnectTimeout = maxDial
	}
	return config, nil
}

// sendsPlainText reports whether a connection to another machine may lack TLS.
func sendsPlainText(c *pgx.ConnConfig) bool {
	if c.TLSConfig == nil && !isLocal(c.Host) {
		return true
	}
	for _, other := range c.Fallbacks {
		if other.TLSConfig == nil && !isLocal(other.Host) {
			return true
		}
	}
	return false
}

// isLocal reports whether a host is this machine, or a socket in a folder.
func isLocal(host string) bool {
	return host == "localhost" || strings.HasPrefix(host, "/") || strings.HasPrefix(host, "@") ||
		net.ParseIP(host).IsLoopback()
}

// addresses returns the addresses that a connection tries, without the user and password.
func addresses(c *pgx.ConnConfig) []string {
	all := []string{net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port)))}
	for _, other := range c.Fallbacks {
		all = append(all, net.JoinHostPort(other.Host, strconv.Itoa(int(other.Port))))
	}
	return slices.Compact(all) // an address is tried with and without TLS
}
