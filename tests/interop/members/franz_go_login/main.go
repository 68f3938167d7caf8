// Logs in with franz-go, writes a record and prints what it reads at its offset. What it is told: see login_clients.py.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

type login struct {
	Bootstrap, Ca, Certificate, Key, Mechanism, Username, Password, Token, Topic, Value string
	Tls                                                                                 bool
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	var given login
	if err := json.Unmarshal([]byte(os.Args[1]), &given); err != nil {
		return err
	}
	options := []kgo.Opt{kgo.SeedBrokers(given.Bootstrap), kgo.RecordPartitioner(kgo.ManualPartitioner())}
	if given.Mechanism != "" {
		options = append(options, kgo.SASL(mechanism(given)))
	}
	if given.Tls {
		config, err := tlsConfig(given)
		if err != nil {
			return err
		}
		options = append(options, kgo.DialTLSConfig(config))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := client.Ping(ctx); err != nil {
		return err
	}
	written, err := client.ProduceSync(ctx, &kgo.Record{Topic: given.Topic, Value: []byte(given.Value)}).First()
	if err != nil {
		return err
	}
	from := map[int32]kgo.Offset{written.Partition: kgo.NewOffset().At(written.Offset)}
	client.AddConsumePartitions(map[string]map[int32]kgo.Offset{given.Topic: from})
	fetches := client.PollRecords(ctx, 1)
	if err := fetches.Err(); err != nil {
		return err
	}
	fmt.Println(string(fetches.Records()[0].Value))
	return nil
}

func mechanism(given login) sasl.Mechanism {
	switch given.Mechanism {
	case "PLAIN":
		return plain.Auth{User: given.Username, Pass: given.Password}.AsMechanism()
	case "SCRAM-SHA-256":
		return scram.Auth{User: given.Username, Pass: given.Password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: given.Username, Pass: given.Password}.AsSha512Mechanism()
	}
	return oauth.Auth{Token: given.Token}.AsMechanism()
}

func tlsConfig(given login) (*tls.Config, error) {
	config := &tls.Config{}
	if given.Ca != "" {
		pem, err := os.ReadFile(given.Ca)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		config.RootCAs.AppendCertsFromPEM(pem)
	}
	if given.Certificate != "" {
		own, err := tls.LoadX509KeyPair(given.Certificate, given.Key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{own}
	}
	return config, nil
}
