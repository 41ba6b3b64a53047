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
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// errURL does not contain the URL, which may contain a password.
var errURL = errors.New("postgres: invalid URL: must have the form " +
	"postgres://user:password@host:port/database?sslmode=verify-full, with special characters percent-encoded")

// errSSL is for the parameter ssl of other drivers: pgx ignores it, or reads it as sslmode=require.
var errSSL = errors.New("postgres: invalid URL: got the parameter ssl: want sslmode, such as sslmode=verify-full")

// parse returns the settings of a pool. A connection to another machine uses TLS and checks the
// certificate, unless the operator chose an sslmode: the default of libpq would accept each
// certificate, or send everything in plain text.
func parse(text string, connections int) (*pgxpool.Config, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" { // not only variables of the environment
		return nil, errURL
	}
	query := u.Query()
	if query.Has("ssl") {
		return nil, errSSL
	}
	_, rest, _ := strings.Cut(text, ":")
	config, err := parseConfig(u.Scheme + ":" + rest) // pgx wants small letters
	if err != nil {
		return nil, err
	}
	modes := append([]string{os.Getenv("PGSSLMODE")}, query["sslmode"]...)
	if modes[len(modes)-1] == "" && !isVerified(config.ConnConfig) { // the last counts
		u.RawQuery = strings.TrimPrefix(u.RawQuery+"&sslmode=verify-full", "&") // Encode would write a space as +
		if config, err = parseConfig(u.String()); err != nil {
			return nil, err
		}
		if !isVerified(config.ConnConfig) { // pgx found another query
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

// parseConfig returns the settings of a URL. The error does not contain the URL.
func parseConfig(text string) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(text)
	if file, ok := errors.AsType[*fs.PathError](err); ok { // of a certificate or a key
		return nil, fmt.Errorf("postgres: invalid URL: %w", file)
	}
	if err != nil {
		return nil, errURL
	}
	return config, nil
}

// isVerified reports whether each connection to another machine checks the certificate and its name.
func isVerified(c *pgx.ConnConfig) bool {
	all := append([]*pgconn.FallbackConfig{{Host: c.Host, TLSConfig: c.TLSConfig}}, c.Fallbacks...)
	return !slices.ContainsFunc(all, func(a *pgconn.FallbackConfig) bool {
		return !isLocal(a.Host) && (a.TLSConfig == nil || a.TLSConfig.InsecureSkipVerify)
	})
}

// isLocal reports whether a host is this machine, or a socket in a folder.
func isLocal(host string) bool {
	network, _ := pgconn.NetworkAddress(host, 0)
	return host == "localhost" || network == "unix" || net.ParseIP(host).IsLoopback()
}

// addresses returns the addresses that a connection tries, without the user and password.
func addresses(c *pgx.ConnConfig) []string {
	all := []string{net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port)))}
	for _, other := range c.Fallbacks {
		all = append(all, net.JoinHostPort(other.Host, strconv.Itoa(int(other.Port))))
	}
	return slices.Compact(all) // an address is tried with and without TLS
}
