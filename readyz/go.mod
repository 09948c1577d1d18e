module github.com/redlock-go/redlock/readyz

go 1.25.0

require (
	github.com/redlock-go/redlock v0.0.0
	github.com/stretchr/testify v1.12.1
)

require (
	github.com/redis/rueidis v1.0.79 // indirect
	github.com/yuin/gopher-lua v1.1.1 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sys v0.47.0 // indirect
)

replace github.com/redlock-go/redlock => ../
