package authserver

import "github.com/patchbay-mcp/patchbay/internal/markup"

// A choiceForm is the content of the page on which a user chooses an identity provider.
type choiceForm struct {
	pageForm
	Choices []choice
}

type choice struct{ ID, Name string }

func (f *choiceForm) html() markup.HTML {
	h := f.loginTitle() + ". Where do you have an account?</p>\n" + f.open() + "<div class=\"stack\">\n"
	for _, c := range f.Choices {
		h += `<button type="submit" name="provider" value="` + markup.Text(c.ID) + `">` + markup.Text(c.Name) +
			"</button>\n"
	}
	return h + `<button type="submit" name="decision" value="deny" id="cancel">Cancel</button>
</div>
</form>
`
}

// A passwordForm is the content of the page on which a user types a password.
type passwordForm struct {
	pageForm
	User, Failure string
}

func (f *passwordForm) html() markup.HTML {
	h := f.loginTitle() + ".</p>\n"
	var userFocus, passwordFocus markup.HTML
	if f.Failure == "" {
		userFocus = " autofocus"
	} else {
		h += `<p class="failed" role="alert" id="failure">` + markup.Text(f.Failure) + "</p>\n"
		passwordFocus = ` autofocus aria-describedby="failure"`
	}
	return h + f.open() + `<label for="username">User name</label>
<input type="text" id="username" name="username" value="` + markup.Text(f.User) + `" autocomplete="username"` +
		` autocapitalize="none" spellcheck="false" maxlength="256" required` + userFocus + `>
<label for="password">Password</label>
<input type="password" id="password" name="password" autocomplete="current-password" maxlength="1024" required` +
		passwordFocus + `>
<div class="actions">
<button type="submit" name="decision" value="login" class="main" id="login">Log in</button>
<button type="submit" name="decision" value="deny" id="cancel" formnovalidate>Cancel</button>
</div>
</form>
`
}

// A consentForm is the content of the page on which a user allows a client the access.
type consentForm struct {
	pageForm
	Origin                                              clientOrigin
	DocumentHost, ClientHost, RedirectHost, ResourceURL string

	Local, OnlyLocal, AppLink, Login bool

	Scopes    []Scope
	LoginName string // of the identity provider, if there is a single provider
}

func (f *consentForm) html() markup.HTML {
	client := `<bdi>` + markup.Text(f.Client) + `</bdi>`
	resource := `<bdi>` + markup.Text(f.Resource) + `</bdi>`
	h := `<h1>Allow ` + client + ` to use ` + resource + ` for you?</h1>
<dl>
<dt>App</dt>
<dd id="client">` + client + `<small id="origin">` + f.origin() + "</small></dd>\n"
	if f.ClientHost != "" {
		h += "<dt>Website</dt>\n<dd>" + markup.Text(f.ClientHost)
		if f.Origin != originOperator {
			h += `<small>Not verified.</small>`
		}
		h += "</dd>\n"
	}
	h += "<dt>Returns you to</dt>\n<dd id=\"redirect\"><strong>" + markup.Text(f.RedirectHost) + `</strong>`
	switch {
	case f.Local:
		h += `<small>This device.</small>`
	case f.AppLink:
		h += `<small>The app that opens links of this kind.</small>`
	}
	return h + `</dd>
<dt>Resource</dt>
<dd id="resource">` + resource + `<small>` + markup.Text(f.ResourceURL) + `</small></dd>
</dl>
<h2 id="may">Permissions</h2>
<ul aria-labelledby="may">
` + f.permissions() + "</ul>\n" + f.warning() + f.open() + f.next() + `<div class="actions guarded">
<button type="submit" name="decision" value="allow" class="main" id="allow">Allow</button>
<button type="submit" name="decision" value="deny" id="deny">Deny</button>
<span class="guard" aria-hidden="true"></span>
</div>
</form>
`
}

// origin returns the sentence about who vouches for the name of the client.
func (f *consentForm) origin() markup.HTML {
	switch f.Origin {
	case originOperator:
		return `Known to ` + markup.Text(f.Server) + `.`
	case originDocument:
		return `Published by <strong>` + markup.Text(f.DocumentHost) + `</strong>.`
	}
	return `This name is not verified.`
}

func (f *consentForm) permissions() markup.HTML {
	if len(f.Scopes) == 0 {
		return "<li>Access with your identity, without specific permissions.</li>\n"
	}
	var h markup.HTML
	for _, scope := range f.Scopes {
		h += `<li>` + markup.Text(scope.Description)
		if scope.Description != scope.Name {
			h += `<small><code>` + markup.Text(scope.Name) + `</code></small>`
		}
		h += "</li>\n"
	}
	return h
}

// warning returns the paragraph about redirect URIs that any program of the device can use.
func (f *consentForm) warning() markup.HTML {
	client := ` can claim to be <bdi>` + markup.Text(f.Client) +
		"</bdi>. Allow only if you just started this yourself.</p>\n"
	switch {
	case f.OnlyLocal:
		return `<p class="warning" id="local-warning" role="note">Access is given to a program on this device. ` +
			`Any program here` + client
	case f.AppLink:
		return `<p class="warning" role="note">Access is given to an app on this device. Any app` + client
	}
	return ""
}

// next returns the paragraph about the login that follows.
func (f *consentForm) next() markup.HTML {
	if !f.Login {
		return ""
	}
	h := markup.HTML(`<p class="next" id="next">Next you log in`)
	if f.LoginName != "" {
		h += ` with <bdi>` + markup.Text(f.LoginName) + `</bdi>`
	}
	return h + ". You can still cancel there.</p>\n"
}

// loginTitle returns the beginning of a login page, up to the end of the first sentence.
func (f *pageForm) loginTitle() markup.HTML {
	h := `<h1>Log in to ` + markup.Text(f.Server) + "</h1>\n<p>to let <bdi>" + markup.Text(f.Client) +
		`</bdi> use <bdi>` + markup.Text(f.Resource) + `</bdi>`
	if f.ElsewhereURL != "" {
		h += ` (<span id="resource">` + markup.Text(f.ElsewhereURL) + `</span>)`
	}
	return h
}

// open returns the start tag of the form, with its hidden fields.
func (f *pageForm) open() markup.HTML {
	return `<form method="post" action="` + markup.Text(f.Action) + `">
<input type="hidden" name="interaction" value="` + markup.Text(f.Interaction) + `">
<input type="hidden" name="csrf" value="` + markup.Text(f.CSRF) + "\">\n"
}
