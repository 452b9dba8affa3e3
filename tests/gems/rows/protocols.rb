# frozen_string_literal: true

Gems.row "net-imap", server: :dovecot, requires: %w[net/imap], what: "`Net::IMAP#search` on Dovecot",
  open: ->(i) { Net::IMAP.new("127.0.0.1", port: port).tap { |imap| imap.login("user#{i}", "secret"); imap.select("INBOX") } },
  call: ->(imap, _) { imap.search(["SUBJECT", Gate::WORD]) },
  close: ->(imap, _) { imap.logout; imap.disconnect }

Gems.row "net-smtp", server: :smtp, requires: %w[net/smtp], what: "`Net::SMTP#send_message`",
  open: ->(_) { Net::SMTP.new("127.0.0.1", port, starttls: false).start("localhost") },
  call: ->(smtp, _) { smtp.send_message("Subject: #{Gate::WORD}\n\nhello", "a@example.org", "b@example.org") },
  close: ->(smtp, _) { smtp.finish }

Gems.row "net-ldap", server: :ldap, requires: %w[net/ldap], what: "`Net::LDAP#search` on slapd",
  call: lambda { |_, _|
    Net::LDAP.new(host: "127.0.0.1", port: port, connect_timeout: 60).search(base: "dc=test", filter: Net::LDAP::Filter.eq("cn", Gate::WORD))
  }

ssh = lambda { |_|
  Net::SSH.start("127.0.0.1", Etc.getpwuid.name, port: beside, keys: [File.join(directory, "client")], keys_only: true, config: false, verify_host_key: :never,
                                                 non_interactive: true, timeout: 60)
}

Gems.row "net-ssh", beside: :ssh, requires: %w[etc net/ssh], what: "`Net::SSH::Connection::Session#exec!`", open: ssh,
  call: ->(session, _) { session.exec!("/bin/bash #{directory}/visit #{port}").then { |answer| raise answer.to_s unless answer.include?("200 OK") } },
  close: ->(session, _) { session.close }

Gems.row "net-sftp", beside: :ssh, requires: %w[etc net/sftp], what: "`Net::SFTP::Session#connect!` and `#stat!`", open: ssh,
  prepare: -> { File.write(File.join(directory, "gate"), port.to_s) },
  call: ->(session, _) { Net::SFTP::Session.new(session).connect!.stat!("/") },
  close: ->(session, _) { session.close }

Gems.row "grpc", server: :grpc, verdict: :blocks, what: "`GRPC::ClientStub#request_response`",
  advice: "`Reactor.offload { stub.call(…) }`",
  open: ->(_) { GRPC::ClientStub.new("127.0.0.1:#{port}", :this_channel_is_insecure, channel_args: { "grpc.use_local_subchannel_pool" => 1 }) },
  call: ->(stub, _) { stub.request_response("/echo.Echo/Call", Gate::WORD, :to_s.to_proc, :to_s.to_proc) }
