package clients

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
)

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	no(t, err)
	defer listener.Close()
	return listener.Addr().String()
}

// Debian's etcd; its address.
func newEtcd(t *testing.T) string {
	t.Helper()
	address := freeAddress(t)
	own, peers := "http://"+address, "http://"+freeAddress(t)
	start(t, exec.Command("etcd", "--data-dir", t.TempDir(), "--listen-client-urls", own, "--advertise-client-urls", own,
		"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "default="+peers))
	eventually(t, func() error {
		answer, err := http.Get(own + "/health")
		if err == nil {
			answer.Body.Close()
		}
		return err
	})
	return address
}

// Clients of two agents of one application.
func newAgents(t *testing.T) []*s3.Client {
	t.Helper()
	origin, etcd := newOrigin(t), newEtcd(t)
	var clients []*s3.Client
	var folders []string
	for number := range 2 {
		folder := t.TempDir()
		agent := exec.Command(os.Getenv("TEST_TIDEMARK"), "agent", "--etcd", etcd, "--peer", "127.0.0.1:0",
			"--domain", "shop", "--node", fmt.Sprintf("n%d", number), "--memory", "64MiB", "--data", folder, "--chooser", "off",
			"--s3", "127.0.0.1:0", "--admin", "127.0.0.1:0",
			"--origin", fmt.Sprintf("s3://%s?endpoint=http://%s", bucket, origin))
		agent.Env = originKeys()
		out, err := agent.StdoutPipe()
		no(t, err)
		start(t, agent)
		ready, err := bufio.NewReader(out).ReadString('\n')
		no(t, err)
		_, after, found := strings.Cut(ready, " s3=")
		if !found {
			t.Fatal(ready)
		}
		clients = append(clients, s3Client(strings.Fields(after)[0], s3Key(t, folder)))
		folders = append(folders, folder)
	}
	for number, client := range clients {
		eventually(t, func() error {
			_, err := client.ListObjectsV2(context.Background(), &s3.ListObjectsV2Input{Bucket: aws.String(bucket)})
			return err
		})
		eventually(t, func() error {
			var shown struct {
				Members   []any `json:"members"`
				Cachelets []struct {
					IsLeased bool `json:"is_leased"`
				} `json:"cachelets"`
			}
			no(t, json.Unmarshal(tidemark(t, "agent", "show", "shop", "--data", folders[number]), &shown))
			if len(shown.Members) != 2 || !shown.Cachelets[0].IsLeased {
				return fmt.Errorf("not settled: %+v", shown)
			}
			return nil
		})
	}
	return clients
}

func put(client *s3.Client, body []byte, ifMatch *string) (*s3.PutObjectOutput, error) {
	return client.PutObject(context.Background(), &s3.PutObjectInput{
		Bucket: aws.String(bucket), Key: aws.String("k"), Body: bytes.NewReader(body), IfMatch: ifMatch,
	})
}

func TestAgentsClientsFindWhatTheOtherOneWrote(t *testing.T) {
	clients := newAgents(t)
	var version *string
	for turn := range 20 {
		writer, body := turn%2, bytes.Repeat([]byte(fmt.Sprintf("turn %d ", turn)), 500)
		// Each condition names the version that the other one wrote.
		put, err := put(clients[writer], body, version)
		no(t, err)
		version = put.ETag
		for _, reader := range []int{1 - writer, writer, 1 - writer} {
			if found := read(t, clients[reader], "k", ""); !bytes.Equal(found, body) {
				t.Fatalf("turn %d at %d: %.20s", turn, reader, found)
			}
		}
	}
	_, err := put(clients[0], []byte("late"), aws.String(`"ffffffffffffffffffffffffffffffff"`))
	var refused smithy.APIError
	if !errors.As(err, &refused) || refused.ErrorCode() != "PreconditionFailed" {
		t.Fatal(err)
	}
	_, err = clients[1].DeleteObject(context.Background(), &s3.DeleteObjectInput{
		Bucket: aws.String(bucket), Key: aws.String("k"),
	})
	no(t, err)
	for _, client := range clients {
		_, err := client.GetObject(context.Background(), &s3.GetObjectInput{
			Bucket: aws.String(bucket), Key: aws.String("k"),
		})
		var gone *types.NoSuchKey
		if !errors.As(err, &gone) {
			t.Fatal(err)
		}
	}
}
