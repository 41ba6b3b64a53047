// Zitadel runs the OpenID provider of zitadel/oidc with its example storage. The first line of its output is its
// issuer, which ends with a slash, like the issuer of many providers.
//
// The client mcp with the secret "secret" may use the redirect URI in the first argument, and may introspect its
// tokens, which are opaque. The user is test-user@localhost with the password verysecure.
package main

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/op"
)

func main() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	issuer := fmt.Sprintf("http://localhost:%d/", l.Addr().(*net.TCPAddr).Port)
	storage.RegisterClients(storage.WebClient("mcp", "secret", os.Args[1]))
	handler := exampleop.SetupServer(issuer, storage.NewStorage(storage.NewUserStore(issuer)),
		slog.New(slog.NewTextHandler(os.Stderr, nil)), false, op.WithAllowInsecure())
	server := &http.Server{Handler: handler}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	fmt.Println(issuer)
	if err := server.Serve(l); err != http.ErrServerClosed {
		log.Fatal(err)
	}
}
