package skills

// ParseFrontmatter is parseFrontmatter.
var ParseFrontmatter = parseFrontmatter
