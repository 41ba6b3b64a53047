package authserver_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/patchbay-mcp/patchbay/oauth/authserver"
)

// Users log in at an OpenID provider. The keys that seal its tokens are in a file.
func ExampleNewProviderLogin() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	login, err := authserver.NewProviderLogin(&authserver.ProviderOptions{Providers: []authserver.Provider{{
		ID: "company", Name: "Our company", Issuer: "https://id.example.com",
		ClientID: "mcp", ClientSecret: os.Getenv("OIDC_SECRET"),
		Scopes: []string{"openid", "profile", "email", "offline_access"},
	}}})
	if err != nil {
		log.Fatal(err)
	}
	keys, err := authserver.LoadSealKeys(filepath.Join(dir, "seal.keys"))
	if err != nil {
		log.Fatal(err)
	}
	server, err := authserver.New(&authserver.Options{
		Issuer: "https://mcp.example.com",
		Resources: []authserver.Resource{{URL: "https://mcp.example.com/mcp", Name: "Calendar",
			Scopes: []authserver.Scope{
				{Name: "read", Description: "Read your calendar"},
			}}},
		Login: login, SealKeys: keys, // set Store to one of package stores/bolt to keep the state in a file
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("register at the provider:", server.Issuer()+"/login/callback/company")
	// Output: register at the provider: https://mcp.example.com/login/callback/company
}

// The configuration of a small installation contains only the hash of the password.
func ExampleNewPasswordLogin() {
	hash, err := authserver.HashPassword("correct horse battery staple")
	if err != nil {
		log.Fatal(err)
	}
	_, err = authserver.NewPasswordLogin(&authserver.PasswordOptions{
		Users: []authserver.PasswordUser{{Name: "alice", Hash: hash}},
	})
	fmt.Println(err)
	// Output: <nil>
}
