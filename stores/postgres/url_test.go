package postgres

import (
	"crypto/tls"
	"strings"
	"testing"
)

// describe returns the ways in which a connection protects its data, in the order of the attempts.
func describe(text string) string {
	config, err := parse(text, 0)
	if err != nil {
		return err.Error()
	}
	way := func(c *tls.Config) string {
		switch {
		case c == nil:
			return "plain"
		case c.InsecureSkipVerify:
			return "any certificate"
		}
		return "verified " + c.ServerName
	}
	all := []string{way(config.ConnConfig.TLSConfig)}
	for _, other := range config.ConnConfig.Fallbacks {
		all = append(all, way(other.TLSConfig))
	}
	return strings.Join(all, ", ")
}

// Only an sslmode of the operator permits a connection to another machine without a check of the
// certificate.
func TestConnectionsToOtherMachinesAreVerified(t *testing.T) {
	const refused, prefer = "want sslmode", "any certificate, plain"
	for _, test := range []struct{ url, variable, value, want string }{
		{url: "postgres://db/x", want: "verified db"},
		{url: "POSTGRES://db/x", want: "verified db"},
		{url: "postgres://db/x?sslmode=", want: "verified db"},
		{url: "postgres://db/x?sslmode=disable&sslmode=", want: "verified db"},
		{url: "postgres://db/x?sslmode=", variable: "PGSSLMODE", value: "verify-full", want: "verified db"},
		{url: "postgres://db/x?sslmode=", variable: "PGSSLMODE", value: "disable", want: "verified db"},
		{url: "postgres://db/x", variable: "PGSSLMODE", value: "prefer", want: prefer},
		{url: "postgres://db/x?sslmode=prefer", want: prefer},
		{url: "postgres://db/x?sslmode=disable", want: "plain"},
		{url: "postgres://db/x?sslmode=require", want: "any certificate"},
		{url: "postgres://db/x?ssl=", want: refused},
		{url: "postgres://db/x?ssl=0", want: refused},
		{url: "postgres://db/x?ssl=true", want: refused},
		{url: "postgres://db/x?sslmode=verify-full&ssl=true", want: refused},
		{url: "postgres://db/x?sslnegotiation=direct", want: "verified db"},
		{url: "postgres://db/x", variable: "PGSSLNEGOTIATION", value: "direct", want: "verified db"},
		{url: "postgres:///x", variable: "PGHOST", value: "db", want: "verified db"},
		{url: "postgres://localhost,db/x", want: "verified localhost, verified db"},
		{url: "postgres:///x?host=@db", want: "verified @db"},
		{url: "postgres://db/x#&sslmode=disable", want: "percent-encoded"},
		{url: "postgres://db?user=b@c", want: "percent-encoded"},
		{url: "postgres:///x?host=/run/postgresql", want: "plain"},
		{url: "postgres://localhost/x", want: prefer},
		{url: "postgres://127.0.0.1/x?sslnegotiation=direct", want: "any certificate"},
		{url: "postgres://[::1]/x", want: prefer},
	} {
		t.Run(test.url+" "+test.variable, func(t *testing.T) {
			if test.variable != "" {
				t.Setenv(test.variable, test.value)
			}
			if got := describe(test.url); !strings.Contains(got, test.want) || test.want == "plain" && got != "plain" {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestParametersKeepTheirSpaces(t *testing.T) {
	config, err := parse("postgres://db/x?options=-c%20work_mem%3D4MB", 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := config.ConnConfig.RuntimeParams["options"]; got != "-c work_mem=4MB" {
		t.Errorf("options: got %q", got)
	}
}
