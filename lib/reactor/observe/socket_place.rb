# frozen_string_literal: true

require "etc"

module Reactor
  # The path of an observed process's socket: PID.sock in a folder that only its user can enter. Environment variables do not
  # affect the folder, because they may differ between the process and the terminal.
  #
  # @api private
  module SocketPlace
    # Another user owns the folder or can enter it.
    class Untrusted < StandardError
    end

    # Makes the folder if needed.
    #
    # @param pid [Integer]
    # @return [String]
    # @raise [Untrusted]
    # @raise [SystemCallError] the folder cannot be made
    def self.path(pid)
      folder = File.join(Etc.systmpdir, "reactor-#{Process.euid}")
      begin
        Dir.mkdir(folder, 0o700)
      rescue Errno::EEXIST
        nil
      end
      status = File.lstat(folder)
      own = status.directory? && status.uid == Process.euid && status.mode.nobits?(0o077)
      raise Untrusted, "#{folder} is not a folder that only user #{Process.euid} can enter" unless own

      File.join(folder, "#{pid}.sock")
    end
  end
end
