from kornel.shim_mock.cli import main

if __name__ == "__main__":
    main()
